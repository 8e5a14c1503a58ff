/* What audits say of a profile: the interval and the evidence against each promise, and where texts leave. */

import { html } from "./vendor/preact-htm-3.1.1.module.js";
import { layerColor } from "./charts.js";
import { percent, ruleText, when } from "./format.js";
import { LOSSES } from "./ladder.js";

const SIGNS = { kept: "✓", broken: "✗", watching: "…" };

export function State({ state }) {
  return html`<span class=${`state ${state.replace(" ", "-")}`}>${SIGNS[state] && html`<span aria-hidden="true">${SIGNS[state]} </span>`}${state}</span>`;
}

export function ProfileQuality({ name, note, found, delta, layers }) {
  return html`<section class="card profile" aria-label=${name}>
    <header><h3>${name}</h3>${note && html`<small>${note}</small>`}<${State} state=${found.state} /></header>
    <p class="note">${[found.rule && ruleText(found.rule), audits(found)].filter(Boolean).join("; ")}</p>
    ${found.promises.map((promise) => html`<${Promised} promise=${promise} delta=${delta} />`)}
    ${!found.promises.length && found.audits > 0 && html`<${Interval} title=${LOSSES.disagreement}
      rate=${found.disagreement} interval=${found.interval} counts=${[found.differences, found.audits]} />`}
    ${Object.keys(found.exits).length > 0 && html`<${ExitMix} found=${found} layers=${layers} />`}
  </section>`;
}

function audits({ audits: count, skipped, since }) {
  if (!count && !skipped) return "no text has been audited yet";
  const busy = skipped ? `, ${number(skipped)} skipped while the server was busy` : "";
  return `${number(count)} texts audited${busy}, since ${when(since)}`;
}

// A power of ten as it is read best.
const times = (log10) => (log10 < -2 ? "< 0.01" : log10 < 4 ? String(Number((10 ** log10).toPrecision(2))) : `10^${Math.floor(log10)}`);
const number = (count) => count.toLocaleString("en");

function Promised({ promise, delta }) {
  const { loss, epsilon, texts, lost, interval, evidence_log10: evidence, state } = promise;
  if (texts === null) return html`<p>${LOSSES[loss]}: at most ${percent(epsilon)} is promised. Audits cannot tell.</p>`;
  const alarm = -Math.log10(delta);
  return html`
    <${Interval} title=${LOSSES[loss]} state=${state} rate=${texts ? lost / texts : null} interval=${interval}
      counts=${[lost, texts]} promised=${epsilon} />
    <div class="evidence"><span>Evidence against it</span>
      <span class="value">${times(evidence)} : 1, alarm at ${times(alarm)} : 1</span>
      <div class="bar"><i class=${state} style=${{ width: `${100 * Math.min(1, Math.max(0, evidence / alarm))}%` }}></i></div></div>`;
}

// The audits' rate and the interval of the true one, on a scale with what is promised.
function Interval({ title, state = "", rate, interval: [low, high], counts: [lost, texts], promised }) {
  const most = promised ? Math.min(1, Math.max(3 * promised, 1.3 * (rate || 0))) : Math.min(1, 1.2 * high);
  const at = (share) => `${Math.min(100, (100 * share) / most)}%`;
  const width = `${(100 * (Math.min(most, high) - Math.min(most, low))) / most}%`;
  const words = texts ? `${number(lost)} of ${number(texts)} audits: ${percent(rate)}` : "no audits yet";
  const between = texts ? `true share ${percent(low)} to ${percent(high)}` : "";
  return html`<div class="promise">
    <div class="words"><strong>${title}</strong><span>${words}</span></div>
    <div class="track" role="img" aria-label=${`${between || "no interval"}${promised ? `, promised at most ${percent(promised)}` : ""}`}>
      ${texts > 0 && html`<i class=${`range ${state} ${high > most ? "open" : ""}`} style=${{ left: at(low), width }}></i>
        <i class=${`rate ${state}`} style=${{ left: at(rate) }}></i>`}
      ${promised && html`<i class="promised" style=${{ left: at(promised) }}></i>`}
    </div>
    <div class="scale" aria-hidden="true"><span>0</span>
      ${promised && html`<span class="at" style=${{ left: at(promised) }}>promised ${percent(promised)}</span>`}
      <span>${percent(most)}</span></div>
    ${between && html`<p class="note">${between}</p>`}</div>`;
}

// Where audited texts leave, and where the certifying texts would.
function ExitMix({ found, layers }) {
  const rows = Object.entries(found.exits);
  const certified = rows.some(([, exit]) => exit.expected !== null);
  const most = Math.max(...rows.map(([, exit]) => Math.max(exit.share, exit.expected || 0)), 0.01);
  const width = (share) => `${(100 * share) / most}%`;
  return html`<table class="mix"><caption>Exits by layer${certified && found.drift !== null
      ? `: ${percent(found.drift)} leave elsewhere than the certifying texts` : ""}</caption>
    <thead><tr><th scope="col">Layer</th><td></td><th scope="col">audits</th>
      ${certified && html`<th scope="col"><i class="tick" aria-hidden="true"></i>certificate</th>`}<th scope="col">differ</th></tr></thead>
    <tbody>${rows.map(([layer, exit]) => html`<tr><th scope="row">${layer}</th>
      <td class="both" aria-hidden="true"><div><div class="bar">
        <i style=${{ width: width(exit.share), background: layerColor(Number(layer), layers) }}></i></div>
        ${certified && html`<b style=${{ left: width(exit.expected) }}></b>`}</div></td>
      <td>${found.audits ? percent(exit.share) : "–"}</td>
      ${certified && html`<td>${percent(exit.expected)}</td>`}
      <td>${exit.differences ? number(exit.differences) : "0"}</td></tr>`)}</tbody></table>`;
}
