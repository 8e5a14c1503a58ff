/* Policy: the live document, its history, a draft with its dry run, and the rollout. */

import { html, useEffect, useState } from "../vendor/preact-htm-3.1.1.module.js";
import { call, useCall } from "../api.js";
import { Changes, DryRun } from "../dry-run.js";
import { doneBy, percent, ruleText, short, when } from "../format.js";
import { Card, Problem, barred } from "../parts.js";
import { Rollout, StartRollout } from "../rollout.js";
import { Store } from "../store.js";

// What the playground hands over: {model, default}.
export const draft = new Store(null);

// Drafts that are not applied yet, {base, text, why} by the model's name.
const drafts = new Map();

function View({ model, policy, refresh }) {
  const path = `/v1/models/${encodeURIComponent(model.name)}/policy`;
  const [done, setDone] = useState(0);
  const changed = () => {
    setDone(done + 1);
    refresh();
  };
  if (!policy) return null; // what is wrong stands above
  return html`
    <${Rollout} path=${path} on=${[policy.version, done]} changed=${changed} />
    <div class="columns">
      <div><${Live} policy=${policy} />
        <${History} path=${path} live=${policy.version} changed=${changed} /></div>
      <${Draft} path=${path} model=${model} policy=${policy} changed=${changed} />
    </div>`;
}

function Live({ policy }) {
  return html`<${Card} title=${`Live policy: version ${policy.version}`}
      note=${`${doneBy(policy)}, ${when(policy.at)}`}>
    ${policy.why && html`<p class="why">${policy.why}</p>`}
    ${policy.config_problem && html`<p class="problem">The deployment's config is refused: ${policy.config_problem}</p>`}
    <div class="scroll" tabindex="0" role="region" aria-label="What the policy has become"><table>
      <thead><tr><th scope="col">Profile</th><th scope="col">Asks for</th><th scope="col">Has become</th>
        <th scope="col">Layers</th><th scope="col">Certified</th></tr></thead>
      <tbody>${Object.entries(policy.resolved).map(([name, found]) => html`
        <tr><th scope="row">${name}</th><td>${wish(policy.policy, name)}</td>
          <td>${ruleText(found.rule)}${found.problem && html`<p class="wrong">${found.problem}</p>`}</td>
          <td>${short(found.expected_layers)}</td><td>${certificates(found)}</td></tr>`)}</tbody>
    </table></div>
    <details><summary>The document</summary><pre tabindex="0">${JSON.stringify(policy.policy, null, 2)}</pre></details>
  </${Card}>`;
}

function wish(document, name) {
  const asked = name === "default" ? document.default : document.profiles?.[name];
  const exit = asked?.exit ?? asked;
  if (typeof exit === "string") return `profile ${exit}`;
  if (!exit?.target) return ruleText(exit);
  return Object.entries(exit.target).map(([key, value]) => `${key} ${value}`).join(", ");
}

function certificates(found) {
  const all = found.certificate ? [found.certificate] : found.certificates || [];
  return all.length ? all.map((each) => html`${each.loss} <span class="whole">≤ ${percent(each.epsilon)}</span> `) : "–";
}

function Draft({ path, model, policy, changed }) {
  const [given] = useState(() => (draft.value?.model === model.name ? draft.value : null));
  const [begun] = useState(() => begin(policy, drafts.get(model.name), given));
  const [base, setBase] = useState(begun.base);
  const [text, setText] = useState(begun.text);
  const [why, setWhy] = useState(begun.why);
  const [state, setState] = useState({});
  const reset = () => {
    setBase(policy);
    setText(shown(policy.policy));
    setState({});
  };
  // Another version has become live: a draft that has changes stays on top of the one before.
  const touched = text !== shown(base.policy) && state.applied !== text;
  useEffect(() => { touched || why ? drafts.set(model.name, { base, text, why }) : drafts.delete(model.name); });
  useEffect(() => { if (policy.version !== base.version && !touched) reset(); }, [policy.version]);
  const run = async (busy, ask) => {
    setState({ ...state, busy, error: null });
    try {
      setState({ ...(await ask(parsed(text))), of: text, busy: null });
    } catch (error) {
      setState({ ...state, error, busy: null });
    }
  };
  const check = () => run("check", async (document) => ({ found: await call("POST", `${path}/dry-run`, { policy: document }) }));
  const apply = () => run("apply", async (document) => {
    await call("PUT", path, { policy: document, version: base.version, ...(why && { why }) });
    setWhy("");
    changed();
    return { applied: text };
  });
  const started = () => {
    setState({ applied: text }); // the draft is a candidate now
    changed();
  };
  useEffect(() => {
    draft.set(null);
    if (given) check();
  }, []);
  return html`<${Card} title="Draft" note=${`on top of version ${base.version}`}>
    <textarea class="code" rows="28" spellcheck="false" aria-label="Draft of the policy, JSON" value=${text}
      onInput=${(event) => setText(event.target.value)}></textarea>
    <label>Reason, for the history<input value=${why} maxlength="500" onInput=${(event) => setWhy(event.target.value)} /></label>
    <div class="buttons">
      <button type="button" class="secondary" aria-busy=${String(state.busy === "check")} onClick=${check}>Dry run</button>
      <button type="button" aria-busy=${String(state.busy === "apply")} onClick=${apply}>Apply</button>
      <button type="button" class="secondary outline" onClick=${reset}>Discard</button>
    </div>
    <${Problem} error=${state.error} />
    ${state.found && state.of === text && html`<${DryRun} found=${state.found} layers=${model.layers} />`}
    <${StartRollout} path=${path} read=${() => parsed(text)} why=${why} changed=${started} />
  </${Card}>`;
}

const shown = (document) => JSON.stringify(document, null, 2);

// The draft of before, or a new one of the live policy, with the default that was handed over.
function begin(policy, kept = { base: policy, text: shown(policy.policy), why: "" }, given = null) {
  if (!given) return kept;
  try {
    return { ...kept, text: shown(withDefault(JSON.parse(kept.text), given.default)) };
  } catch {
    return { ...kept, base: policy, text: shown(withDefault(policy.policy, given.default)) };
  }
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw Object.assign(new Error(`The draft is no JSON: ${error.message}`), { code: "draft" });
  }
}

// A policy whose default, or the profile that it names, has this exit.
function withDefault(document, exit) {
  const name = typeof document.default === "string" ? document.default : null;
  if (!name) return { ...document, default: exit };
  const profile = document.profiles[name];
  const next = profile.exit ? { ...profile, exit } : exit;
  return { ...document, profiles: { ...document.profiles, [name]: next } };
}

const LATEST = 20; // versions
const ALL = 100;

function History({ path, live, changed }) {
  const [limit, setLimit] = useState(LATEST);
  const { data, error } = useCall(`${path}/history?limit=${limit}`, [live]);
  const [state, setState] = useState({});
  const back = async (version) => {
    setState({ busy: version });
    try {
      await call("POST", `${path}/rollback`, { to: version, version: live });
      setState({});
      changed();
    } catch (failed) {
      setState({ error: failed });
    }
  };
  return html`<${Card} title="History">
    ${barred(error) && html`<p class="note">A key with the scope <code>admin</code> sees who has changed the policy, and why.</p>`}
    <${Problem} error=${(!barred(error) && error) || state.error} />
    <ol class="history">${(data?.entries || []).map((entry) => html`<li>
      <div class="entry"><strong>Version ${entry.version}</strong>
        <small>${doneBy(entry)}, ${when(entry.at)}</small>
        ${entry.version === live ? html`<span class="badge">live</span>`
          : html`<button type="button" class="secondary outline" aria-busy=${String(state.busy === entry.version)}
              onClick=${() => back(entry.version)}>Roll back to ${entry.version}</button>`}</div>
      ${entry.why && html`<p class="why">${entry.why}</p>`}
      <${Changes} changes=${entry.changes} /></li>`)}</ol>
    ${limit < ALL && data?.entries.length === limit && html`
      <button type="button" class="secondary outline" onClick=${() => setLimit(ALL)}>Earlier versions</button>`}</${Card}>`;
}

export const policy = { id: "policy", title: "Policy", View };
