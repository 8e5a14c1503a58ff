/* A served model: what it is, what is certified for it, and its exits. */

import { html } from "./vendor/preact-htm-3.1.1.module.js";
import { layersOf } from "./charts.js";
import { percent } from "./format.js";
import { bound, frontier, views } from "./ladder.js";

const VERSION_DIGITS = 12; // that answers name a bundle by
const TASKS = {
  single_label: "one label",
  multi_label: "any number of labels",
  regression: "a number",
  token: "entities",
};

// `aliases` are the names that stand for it, `children` its buttons.
export function ModelCard({ model, aliases, children }) {
  return html`<section class="card model" aria-label=${model.name}>
    <header><h3>${model.name}</h3>
      ${aliases.map((alias) => html`<span class="alias">${alias}</span>`)}
      <span class=${`state ${model.ready ? "kept" : "broken"}`}>${model.ready ? "✓ ready" : "✗ not ready"}</span></header>
    <${Facts} model=${model} />
    <${Certificates} model=${model} />
    <${Exits} model=${model} />
    ${children}
  </section>`;
}

function Facts({ model }) {
  const facts = [
    ["Device", model.device],
    ["Precision", model.precision],
    ["In the bundle", model.precisions.join(", ")],
    ["Task", TASKS[model.task] || model.task],
    ["Layers", `${model.layers}, exits at ${listed(layersOf(model))}`],
    ["Longest text", `${model.max_tokens.toLocaleString("en")} tokens`],
    ["Policy", `version ${model.policy_version}`],
    ["Labels", html`<span title=${model.labels.join(", ")}>${few(model.labels)}</span>`],
  ];
  return html`<dl class="facts">${facts.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}
    <div class="hash"><dt>Version and SHA-256 of the bundle's manifest</dt>
      <dd><code><strong>${model.bundle.slice(0, VERSION_DIGITS)}</strong>${model.bundle.slice(VERSION_DIGITS)}</code></dd></div></dl>`;
}

const few = (labels) => (labels.length > 4 ? `${labels.slice(0, 3).join(", ")} and ${labels.length - 3} more` : labels.join(", "));

// "1 to 6", or each of them.
function listed(layers) {
  const whole = layers.length > 2 && layers.every((layer, i) => layer === layers[0] + i);
  return whole ? `${layers[0]} to ${layers.at(-1)}` : layers.join(", ");
}

// For each loss and bound the cheapest certified rule.
function Certificates({ model }) {
  if (!model.ladder.certified) return html`<p class="note">No certificates: ${model.ladder.note || "none of its rules is certified."}</p>`;
  const rows = views(model).map((view) => ({ ...view, best: frontier(view.rungs, view.loss, (rung) => rung.expected_layers) }));
  const bounds = [...new Set(rows.flatMap(({ rungs, loss }) => rungs.map((rung) => bound(rung, loss))))]
    .filter((each) => each > 0).sort((a, b) => a - b);
  const cell = ({ best, loss }, most) => {
    const rung = best.findLast((each) => bound(each, loss) <= most);
    return html`<td>${rung ? html`${rung.expected_layers.toFixed(2)} <small>${rung.speedup.toFixed(1)}×</small>` : "–"}</td>`;
  };
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${`Certificates of ${model.name}`}><table class="numbers certificates">
    <caption>Certificates <small>mean layers and speedup of the fastest rule; ${certifying(model)}</small></caption>
    <thead><tr><th scope="col">Loss, at most</th>${bounds.map((each) => html`<th scope="col">${percent(each)}</th>`)}</tr></thead>
    <tbody>${rows.map((row) => html`<tr><th scope="row">${row.words}</th>${bounds.map((each) => cell(row, each))}</tr>`)}</tbody>
  </table></div>`;
}

function certifying(model) {
  const all = model.ladder.rungs.flatMap((rung) => rung.certificates);
  if (!all.length) return "of the decisions of flags";
  const [texts, risks] = [all.map((each) => each.n), all.map((each) => each.delta)];
  return `${Math.max(...texts).toLocaleString("en")} texts, risk ${percent(Math.max(...risks))} each`;
}

function Exits({ model }) {
  const { calibration, costs } = model;
  const metric = calibration?.metric;
  const measured = Object.fromEntries((calibration?.exits || []).map((exit) => [exit.layer, exit[metric] ?? exit.accuracy ?? exit.metrics?.[metric]]));
  const ms = Object.fromEntries(costs.map((cost) => [cost.layer, cost.example_ms]));
  let all = 0;
  return html`<details><summary>Exits</summary>
    <div class="scroll" tabindex="0" role="region" aria-label=${`Exits of ${model.name}`}><table class="numbers">
      <thead><tr><th scope="col">Layer</th>${metric && html`<th scope="col">${metric}</th>`}<th scope="col">temperature</th>
        <th scope="col">ms, 32 tokens</th></tr></thead>
      <tbody>${model.exits.map((exit) => {
        all += ms[exit.layer] ?? NaN;
        return html`<tr><th scope="row">${exit.layer}</th>${metric && html`<td>${shown(measured[exit.layer])}</td>`}
          <td>${exit.temperature.toFixed(2)}</td><td>${Number.isNaN(all) ? "–" : all.toFixed(2)}</td></tr>`;
      })}</tbody></table></div>
    ${metric && html`<p class="note">${metric} of each exit alone, measured on ${calibration.data.name} in ${model.calibrated_on}.</p>`}</details>`;
}

const shown = (value) => (value === undefined || value === null ? "–" : value.toFixed(3));
