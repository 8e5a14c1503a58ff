/* Models: which bundles are served, their certificates, and what changes them while the server runs. */

import { html, useRef, useState } from "../vendor/preact-htm-3.1.1.module.js";
import { useCall } from "../api.js";
import { ModelCard } from "../model-card.js";
import { Aliases, Changes, ModelButtons, Outcome, Reason, Repository } from "../model-changes.js";
import { serving } from "../metrics.js";
import { Card, Problem, barred } from "../parts.js";
import { useStore } from "../store.js";

const WITHOUT = [404, 405, 501]; // a server whose models stay as they are

function View({ models, refresh }) {
  const [turn, setTurn] = useState(0);
  const refused = useRef(false); // to ask again would only be refused again
  const { data, error } = useCall(refused.current ? null : "/v1/aliases", [turn, useStore(serving)]);
  refused.current = barred(error);
  const changed = () => {
    setTurn((count) => count + 1);
    refresh();
  };
  const names = models.models.map((each) => each.name);
  const aliases = data?.aliases ?? named(models.aliases);
  const of = (name) => Object.keys(aliases).filter((alias) => aliases[alias].model === name);
  const fixed = WITHOUT.includes(error?.status);
  return html`
    <h2 class="hidden">Models</h2>
    <${Outcome} />
    <div class=${fixed ? "" : "models-columns"}>
      <div>${!names.length && html`<p>No model is loaded.</p>`}
        ${models.models.map((model) => html`
        <${ModelCard} key=${model.name} model=${model} aliases=${of(model.name)}>
          ${data && html`<${ModelButtons} model=${model} aliases=${of(model.name)} changed=${changed} />`}</${ModelCard}>`)}</div>
      ${!fixed && html`<div>
        ${error && (barred(error) ? html`<p class="note">A key with the scope <code>admin</code> loads and unloads models, and moves aliases.</p>` : html`<${Problem} error=${error} />`)}
        ${data && html`<${Card} title="Next change"><${Reason} /></${Card}>`}
        <${Aliases} aliases=${aliases} names=${names} changeable=${Boolean(data)} changed=${changed} />
        <${Repository} bundles=${models.repository} changeable=${Boolean(data)} changed=${changed} />
        <${Changes} history=${data?.history} /></div>`}
    </div>`;
}

// What a reader sees of aliases.
const named = (aliases = {}) => Object.fromEntries(Object.entries(aliases).map(([alias, model]) => [alias, { model }]));

export const models = { id: "models", title: "Models", View, alone: true };
