/* Changes of the models while the server runs: load, unload, and aliases. */

import { html, useRef, useState } from "./vendor/preact-htm-3.1.1.module.js";
import { call } from "./api.js";
import { when } from "./format.js";
import { Card, Problem } from "./parts.js";
import { Store, useStore } from "./store.js";

// What a change has come to: {busy, done, error}. It outlives the model that was unloaded.
const outcome = new Store({});
const reason = new Store("");

// Makes a change, one at a time; `words` say what is done then. Returns whether it was made.
async function make(change, words, changed) {
  if (outcome.value.busy) {
    const message = `One change is made at a time, and nothing was done for this one: ${words}.`;
    outcome.set({ ...outcome.value, error: { code: "busy", message } });
    changed(); // what was chosen is as it was before
    return false;
  }
  outcome.set({ busy: words });
  try {
    const answer = await change(reason.value ? { reason: reason.value } : {});
    outcome.set({ ...outcome.value, busy: null, done: `${words}${replicas(answer)}` });
    reason.set("");
  } catch (error) {
    outcome.set({ error });
  }
  changed();
  return Boolean(outcome.value.done);
}

// "; in 2 replicas" and which of them are not as the others.
function replicas(answer) {
  const { replicas: all = [], refused = [], unconfirmed = 0 } = answer || {};
  const parts = [all.length > 1 && `in ${all.length} replicas`, ...refused.map((each) => `${each.replica} refuses it: ${each.problem}`),
    unconfirmed > refused.length && `${unconfirmed - refused.length} have not said so yet`];
  return parts.filter(Boolean).map((part) => `; ${part}`).join("");
}

export function Outcome() {
  const { busy, done, error } = useStore(outcome);
  return html`<div role="status" class="outcome">${busy && html`<p aria-busy="true">Working: ${busy}</p>`}${done && html`<p class="done">✓ ${done}</p>`}</div>
    <${Problem} error=${error} />`;
}

export function Reason() {
  const text = useStore(reason);
  return html`<label>Reason, for the history<input value=${text} maxlength="500" onInput=${(event) => reason.set(event.target.value)} /></label>`;
}

const path = (kind, name, action) => `/v1/${kind}/${encodeURIComponent(name)}${action ? `/${action}` : ""}`;
export const load = (name, bundle, changed) =>
  make((body) => call("POST", path("models", name, "load"), { ...(bundle && { bundle }), ...body }), `${bundle || name} is loaded${bundle && bundle !== name ? ` as ${name}` : ""}`, changed);
const unload = (name, changed) => make((body) => call("POST", path("models", name, "unload"), body), `${name} is unloaded`, changed);
const move = (alias, model, changed) =>
  make((body) => call("PUT", path("aliases", alias), { model, ...body }), `${alias} stands for ${model}`, changed);
const remove = (alias, changed) => make((body) => call("DELETE", path("aliases", alias), body), `${alias} stands for no model`, changed);

export function ModelButtons({ model, aliases, changed }) {
  const warning = aliases.length ? `${aliases.join(", ")} stands for it: move or remove that first.`
    : "Requests that it has taken are answered; later ones are refused.";
  return html`<div class="buttons">
    <button type="button" class="secondary outline" onClick=${() => load(model.name, null, changed)}>Load again</button>
    <${Asked} words="Unload" title=${`Unload ${model.name}?`} onYes=${() => unload(model.name, changed)}>${warning}</${Asked}></div>`;
}

// A button that asks first.
function Asked({ words, title, onYes, children }) {
  const dialog = useRef();
  const yes = () => {
    dialog.current.close();
    onYes();
  };
  return html`<button type="button" class="secondary outline" aria-haspopup="dialog" onClick=${() => dialog.current.showModal()}>${words}</button>
    <dialog ref=${dialog} aria-label=${title}><article><h2>${title}</h2><p>${children}</p>
      <div class="buttons"><button type="button" onClick=${yes}>${words}</button>
        <button type="button" class="secondary outline" onClick=${() => dialog.current.close()}>Cancel</button></div></article></dialog>`;
}

// `aliases` are {alias: {model, since, by, why}}.
export function Aliases({ aliases, names, changeable, changed }) {
  const [fresh, setFresh] = useState("");
  const add = async (event) => {
    event.preventDefault();
    const added = await move(fresh.trim(), new FormData(event.target).get("model"), changed);
    if (added) setFresh("");
  };
  const known = Object.entries(aliases);
  return html`<${Card} title="Aliases" note="names that stand for a model" class="card aliases">
    ${!known.length && html`<p class="note">There are none.</p>`}
    <ul>${known.map(([alias, found]) => html`<li><div class="entry"><strong>${alias}</strong>
      ${changeable ? html`<select aria-label=${`Model of ${alias}`} value=${found.model} onChange=${(event) => move(alias, event.target.value, changed)}>
          ${names.map((name) => html`<option value=${name}>${name}</option>`)}</select>
        <${Asked} words="Remove" title=${`Remove ${alias}?`} onYes=${() => remove(alias, changed)}>Requests for it are refused then. Its model stays.</${Asked}>`
        : html`<span>${found.model}</span>`}</div>
      ${found.since && html`<small>by ${found.by || "config"}, ${when(found.since)}${found.why ? `: ${found.why}` : ""}</small>`}</li>`)}</ul>
    ${changeable && html`<form class="line" onSubmit=${add}>
      <label>New alias<input required value=${fresh} maxlength="128" onInput=${(event) => setFresh(event.target.value)} /></label>
      <label>stands for<select name="model">${names.map((name) => html`<option value=${name}>${name}</option>`)}</select></label>
      <button type="submit">Add</button></form>
      <p class="note">Requests without a model go to the alias <code>default</code>.</p>`}
  </${Card}>`;
}

export function Repository({ bundles, changeable, changed }) {
  if (!bundles?.length) return null;
  return html`<${Card} title="Repository" note="bundles that may be loaded" class="card repository"><ul>
    ${bundles.map((bundle) => html`<li><${Bundle} key=${bundle.name} bundle=${bundle} changeable=${changeable} changed=${changed} /></li>`)}</ul></${Card}>`;
}

function Bundle({ bundle, changeable, changed }) {
  const [name, setName] = useState(bundle.name);
  const submit = (event) => {
    event.preventDefault();
    load(name.trim(), bundle.name, changed);
  };
  return html`<form class="entry" onSubmit=${submit}><strong>${bundle.name}</strong>
    ${bundle.version && html`<code>${bundle.version}</code>`}
    ${bundle.loaded ? html`<span class="badge">loaded</span>` : changeable && html`
      <input aria-label=${`Name to load ${bundle.name} as`} required maxlength="128" value=${name} onInput=${(event) => setName(event.target.value)} />
      <button type="submit" class="secondary outline">Load</button>`}</form>`;
}

export function Changes({ history }) {
  if (!history?.length) return null;
  return html`<${Card} title="History"><ol class="history">${history.map((each) => html`<li>
    <div class="entry"><strong>${said(each)}</strong><small>by ${each.by}, ${when(each.at)}</small></div>
    ${each.why && html`<p class="why">${each.why}</p>`}</li>`)}</ol></${Card}>`;
}

function said({ action, alias, model, from: before, bundle }) {
  if (action === "start") return "started";
  if (action !== "alias") return `${action} ${model}${bundle && bundle !== model ? ` from ${bundle}` : ""}`;
  return model ? `${alias} stands for ${model}${before ? `, before for ${before}` : ""}` : `${alias} removed`;
}
