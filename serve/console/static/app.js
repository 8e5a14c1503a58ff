/* The shell of the console: head, model, key, theme and tabs.

A tab is a module in tabs/ that exports one object:

  export const playground = {id, title, View}

* `id` is its place in the address (`#live`), `title` its name, `View` a component of Preact.
* `alone` is set if its View is of use while no model is loaded; it has no `model` then.
* Only the View of the tab that is open is mounted. What shall outlive it stands in a `Store` at
  the top of its module (store.js).
* `View` gets these properties:
    model    what GET /v1/models/{model} says of the model that is chosen
    policy   what GET /v1/models/{model}/policy says, or undefined if that is refused
    models   what GET /v1/models says
    refresh  asks for all of these anew; call it after a change
    open     open("policy") goes to another tab
* It calls the server by `call` or `useCall` of api.js, which add the key; `Problem` of parts.js
  shows what they throw. Figures over time come from `useFigures` of metrics.js, charts and bars
  from charts.js, words for numbers from format.js.
* Its styles stand in console.css under a class of its name.

No markup has a `style` attribute in HTML, and nothing is evaluated: the page's content security
policy forbids both. Preact's `style=${{...}}` sets properties and is allowed.
*/

import { html, render, useEffect, useState } from "./vendor/preact-htm-3.1.1.module.js";
import { key, useCall } from "./api.js";
import { Guarded } from "./guarded.js";
import { KeyDialog } from "./key.js";
import { Problem } from "./parts.js";
import { Store, useStore } from "./store.js";
import { ThemeButton } from "./theme.js";
import { live } from "./tabs/live.js";
import { models } from "./tabs/models.js";
import { playground } from "./tabs/playground.js";
import { policy } from "./tabs/policy.js";
import { quality } from "./tabs/quality.js";
import { serving } from "./metrics.js";

const TABS = [playground, live, quality, policy, models];
const chosen = new Store(sessionStorage.getItem("offramp-model") || "");
const version = new Store(0); // counts the changes that were made here

function useTab() {
  const named = () => TABS.find((tab) => `#${tab.id}` === location.hash) || TABS[0];
  const [tab, setTab] = useState(named);
  useEffect(() => {
    const follow = () => setTab(named);
    addEventListener("hashchange", follow);
    return () => removeEventListener("hashchange", follow);
  }, []);
  return tab;
}

function App() {
  const tab = useTab();
  const changes = useStore(version) + useStore(serving);
  const list = useCall("/v1/models", [changes]);
  const names = (list.data?.models || []).map((each) => each.name);
  const wanted = useStore(chosen);
  const name = names.includes(wanted) ? wanted : names[0];
  const secret = useStore(key); // what one key may not do is forgotten with the next
  const locked = list.error?.status === 401;
  return html`
    <${Head} tab=${tab} names=${names} name=${name} locked=${locked} />
    <main class="container-fluid"><div id="panel" class=${tab.id} role="tabpanel" tabindex="-1"
      aria-labelledby=${`tab-${tab.id}`}>
      ${locked && !secret ? html`<p role="alert">This server asks for an API key. Enter a key with Key, above.</p>` : html`<${Problem} error=${list.error} />`}
      ${name && html`<${Tab} key=${[name, tab.id, secret].join()} tab=${tab} name=${name} models=${list.data} />`}
      ${list.data && !name && (tab.alone
        ? html`<${tab.View} key=${secret} models=${list.data} refresh=${() => version.set(version.value + 1)} />`
        : html`<p>No model is loaded.</p>`)}
    </div></main>`;
}

function Tab({ tab, name, models }) {
  const changes = useStore(version) + useStore(serving);
  const path = `/v1/models/${encodeURIComponent(name)}`;
  const model = useCall(path, [path, changes]);
  const policy = useCall(`${path}/policy`, [path, changes]);
  const refresh = () => version.set(version.value + 1);
  const open = (id) => {
    location.hash = id;
    document.getElementById("panel").focus(); // what had the focus goes away
  };
  if (model.error && !model.data) return html`<${Problem} error=${model.error} />`;
  if (!model.data || !(policy.data || policy.error)) return html`<p aria-busy="true">Asking the server</p>`;
  return html`<${Guarded} path=${`${path}/policy`} policy=${policy.data} refresh=${refresh} />
    <${Problem} error=${!policy.data && policy.error} />
    <${tab.View} model=${model.data} policy=${policy.data} models=${models} refresh=${refresh} open=${open} />`;
}

function Head({ tab, names, name, locked }) {
  return html`
    <header class="head">
      <a class="skip" href=${`#${tab.id}`} onClick=${() => document.getElementById("panel").focus()}>Skip to content</a>
      <h1><img src=${new URL("icon.svg", import.meta.url)} alt="" width="28" height="28" />
        <span>Offramp</span></h1>
      <${Tablist} open=${tab} />
      <div class="tools">
        ${names.length > 0 && html`
          <select aria-label="Model" value=${name} onChange=${(event) => {
            sessionStorage.setItem("offramp-model", event.target.value);
            chosen.set(event.target.value);
          }}>${names.map((each) => html`<option value=${each}>${each}</option>`)}</select>`}
        <${KeyDialog} wanted=${locked} />
        <${ThemeButton} />
      </div>
    </header>`;
}

function Tablist({ open }) {
  const turn = (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const place = TABS.indexOf(open);
    const next = { Home: 0, End: TABS.length - 1 }[event.key] ?? (by && place + by);
    if (next === undefined) return;
    event.preventDefault();
    const { id } = TABS[(next + TABS.length) % TABS.length];
    location.hash = id;
    document.getElementById(`tab-${id}`).focus();
  };
  return html`
    <nav><div role="tablist" aria-label="Console" onKeyDown=${turn}>
      ${TABS.map((tab) => html`
        <a role="tab" id=${`tab-${tab.id}`} href=${`#${tab.id}`} aria-controls="panel"
          aria-selected=${String(tab === open)} tabindex=${tab === open ? 0 : -1}>${tab.title}</a>`)}
    </div></nav>`;
}

render(html`<${App} />`, document.getElementById("app"));
