/* Quality: what the ladder promises at which cost, and what audits say of the live promises. */

import { html, useEffect, useState } from "../vendor/preact-htm-3.1.1.module.js";
import { useCall } from "../api.js";
import { percent, ruleText, short } from "../format.js";
import { COSTS, bound, live, msAt, seen, views } from "../ladder.js";
import { LadderCurve } from "../ladder-curve.js";
import { Card, Figure, Problem } from "../parts.js";
import { ProfileQuality } from "../promises.js";
import { Store, useStore } from "../store.js";

const EVERY_MS = 5000;
const ORDER = ["broken", "watching", "kept", "not audited", "no promise"];
const FEW = 100; // audits below which their interval says nothing yet

const chosen = new Store({ loss: null, cost: "layers" });

function View({ model, policy }) {
  const now = useTurns(EVERY_MS);
  const { data, error } = useCall(`/v1/models/${encodeURIComponent(model.name)}/quality`, [policy?.version, now]);
  return html`
    <h2 class="hidden">Quality</h2>
    <${Problem} error=${error} />
    ${data && html`<${Figures} report=${data} />`}
    <${Ladder} model=${model} policy=${policy} report=${data} />
    ${data && html`<${Profiles} model=${model} policy=${policy} report=${data} />`}`;
}

// Counts turns of a clock while the page is seen.
function useTurns(every) {
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const clock = setInterval(() => document.hidden || setTurn((count) => count + 1), every);
    return () => clearInterval(clock);
  }, []);
  return turn;
}

function Figures({ report }) {
  const profiles = Object.values(report.profiles);
  const promised = profiles.filter((each) => each.promises.length);
  const of = (state) => promised.filter((each) => each.state === state).length;
  const sum = (field) => profiles.reduce((all, each) => all + each[field], 0);
  return html`<div class="figures">
    <${Figure} name="Promises kept" value=${of("kept")} note=${`of ${promised.length} profiles that promise`} />
    <${Figure} name="Watching" value=${of("watching")} note="too few audits to tell" />
    <${Figure} name="Broken" value=${of("broken")} bad=${of("broken") > 0} note=${report.on_broken_promise === "safer" ? "a safer rule follows" : "an alert follows"} />
    <${Figure} name="Audited" value=${sum("audits").toLocaleString("en")} note=${`${percent(report.share)} of texts are drawn`} />
    <${Figure} name="Skipped" value=${sum("skipped").toLocaleString("en")} note="the server was busy" />
    <${Figure} name="False alarm" value=${percent(report.delta)} note="its chance, at most" />
  </div>`;
}

function Ladder({ model, policy, report }) {
  const { loss, cost } = useStore(chosen);
  const all = views(model);
  const view = all.find((each) => each.id === loss) || all[0];
  const profiles = live(model, policy, view);
  const marks = profiles.filter((each) => each.share !== null && each[cost] !== null)
    .map((each) => ({ ...each, cost: each[cost] }));
  return html`<${Card} title="What a promise costs" note=${model.ladder.metric ? `loss of ${model.ladder.metric} is certified too` : ""} class="card ladder">
    ${model.ladder.note && html`<p>${model.ladder.note}</p>`}
    <${Choices} all=${all} view=${view} cost=${cost} />
    <div class="ladder-columns">
      <${LadderCurve} rungs=${view.rungs} loss=${view.loss} cost=${COSTS[cost]} marks=${marks}
        audited=${audited(model, report, view.loss, cost)} />
      <${LiveProfiles} profiles=${profiles} />
    </div>
    <${Rungs} view=${view} profiles=${profiles} />
  </${Card}>`;
}

function Choices({ all, view, cost }) {
  const choose = (change) => chosen.set({ ...chosen.value, ...change });
  return html`<div class="choices">
    <label>What is promised, at most<select value=${view.id} onChange=${(event) => choose({ loss: event.target.value })}>
      ${all.map((each) => html`<option value=${each.id}>${each.words}</option>`)}</select></label>
    <fieldset><legend>Cost in</legend>${Object.entries(COSTS).map(([name, { words }]) => html`
      <label><input type="radio" name="cost" checked=${name === cost} onChange=${() => choose({ cost: name })} />${words}</label>`)}</fieldset>
  </div>`;
}

// What audits say of the profiles' loss, once there are enough of them.
function audited(model, report, loss, cost) {
  return Object.entries(report?.profiles || {}).flatMap(([name, found]) => {
    const promise = found.promises.find((each) => each.loss === loss);
    if (!promise?.texts || promise.texts < FEW) return [];
    const layers = Object.entries(found.exits).reduce((all, [layer, exit]) => all + layer * exit.share, 0);
    const [low, high] = promise.interval;
    return [{ name, rate: promise.lost / promise.texts, low, high, cost: cost === "ms" ? msAt(model, layers) : layers }];
  });
}

function LiveProfiles({ profiles }) {
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Live profiles"><table class="numbers">
    <thead><tr><th scope="col">Live profile</th><th scope="col">at most</th><th scope="col">layers</th>
      <th scope="col">ms</th><th scope="col" class="speedup">speedup</th></tr></thead>
    <tbody>${profiles.map((each) => html`<tr><th scope="row">${each.names.join(", ")}<small>${ruleText(each.rule)}</small></th>
      <td>${each.share === null ? "–" : percent(each.share)}</td><td>${short(each.layers)}</td>
      <td>${short(each.ms)}</td><td class="speedup">${each.speedup ? `${each.speedup.toFixed(2)}×` : "–"}</td></tr>`)}</tbody></table>
    ${profiles.some((each) => each.share === null) && html`<small>Nothing is certified for a profile with a dash.</small>`}</div>`;
}

function Rungs({ view, profiles }) {
  const names = (rung) => profiles.find((each) => each.rung === rung)?.names.join(", ") || "";
  return html`<details><summary>All ${view.rungs.length} rules</summary>
    <div class="scroll" tabindex="0" role="region" aria-label="All rules of the ladder"><table class="numbers">
      <thead><tr><th scope="col">Rule</th><th scope="col">at most</th><th scope="col">seen</th><th scope="col">layers</th>
        <th scope="col">ms</th><th scope="col">speedup</th><th scope="col">profiles</th></tr></thead>
      <tbody>${view.rungs.map((rung) => html`<tr><th scope="row">${ruleText(rung.rule)}</th>
        <td>${bound(rung, view.loss) === null ? "–" : percent(bound(rung, view.loss))}</td><td>${percent(seen(rung, view.loss))}</td>
        <td>${rung.expected_layers.toFixed(2)}</td><td>${rung.expected_ms.toFixed(2)}</td><td>${rung.speedup.toFixed(2)}×</td>
        <td>${names(rung)}</td></tr>`)}</tbody></table></div></details>`;
}

function Profiles({ model, policy, report }) {
  const named = typeof policy?.policy.default === "string" ? policy.policy.default : null;
  const shared = { delta: report.delta, layers: model.layers };
  const all = Object.entries(report.profiles)
    .sort((a, b) => ORDER.indexOf(a[1].state) - ORDER.indexOf(b[1].state));
  const told = all.filter(([, found]) => found.audits || found.skipped || found.promises.length);
  const rest = all.filter((each) => !told.includes(each)).map(([name]) => name);
  return html`<h2 class="section">Promises and their audits</h2>
    ${rest.length > 0 && html`<p class="note">Without a promise, and without audits until now: ${rest.join(", ")}.</p>`}
    <div class="columns profiles">
    ${told.map(([name, found]) => html`
      <${ProfileQuality} key=${name} name=${name} note=${name === named ? "the default" : ""} found=${found} ...${shared} />`)}
    ${report.requests.map((found, i) => html`
      <${ProfileQuality} key=${i} name="Asked for by requests" found=${found} ...${shared} />`)}
  </div>`;
}

export const quality = { id: "quality", title: "Quality", View };
