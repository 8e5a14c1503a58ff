/* What a change of the policy would do: before and after, side by side. */

import { html } from "./vendor/preact-htm-3.1.1.module.js";
import { milliseconds, percent, ruleText, short } from "./format.js";

const text = (value) => (typeof value === "string" ? value : JSON.stringify(value));
const shown = (value) => (value?.rule ? ruleText(value) : text(value));

// Old and new value of each place.
export function Changes({ changes }) {
  const places = Object.entries(changes || {});
  if (!places.length) return null;
  const list = html`<ul class="changes">${places.map(([place, [before, after]]) => html`<li><code>${place}</code>${" "}
    ${before !== null && html`<del>${shown(before)}</del>`}${" "}
    ${after !== null ? html`<ins>${shown(after)}</ins>` : html`<ins>removed</ins>`}</li>`)}</ul>`;
  return places.length > MANY ? html`<details><summary>${places.length} changes</summary>${list}</details>` : list;
}

const MANY = 12; // changes that are shown at once

export function DryRun({ found, layers }) {
  const moved = alike(Object.entries(found.profiles).filter(([, sides]) => text(sides.before) !== text(sides.after)));
  return html`<div class="dry-run" role="status">
    ${found.problem && html`<p class="problem">Would be refused: ${found.problem}</p>`}
    <${Changes} changes=${found.changes} />
    ${!found.problem && !moved.length && html`<p>Nothing would change for any profile.</p>`}
    ${!found.problem && moved.map(([name, sides]) => html`<${Sides} name=${name} ...${sides} layers=${layers} />`)}
    ${!found.problem && html`<small>Tried on ${found.recording ?? 0} recorded texts and
      ${" "}${found.audits} audited texts of live traffic.</small>`}
  </div>`;
}

// Profiles that change in the same way stand in one table.
function alike(profiles) {
  const groups = new Map();
  for (const [name, sides] of profiles) groups.set(text(sides), [...(groups.get(text(sides)) || []), name]);
  return [...groups].map(([sides, names]) => [names.join(", "), JSON.parse(sides)]);
}

function Sides({ name, before, after, layers }) {
  const rows = [
    ["rule", (side) => ruleText(side.resolved.rule)],
    ["certified", (side) => (side.resolved.certificate ? `${side.resolved.certificate.loss} ≤ ${percent(side.resolved.certificate.epsilon)}` : "–")],
    ...["expected", "live"].flatMap((kind) => [
      [`layers, ${WORDS[kind]}`, (side) => (side[kind]?.layers === undefined ? "–" : `${short(side[kind].layers)} of ${layers}`)],
      [`time, ${WORDS[kind]}`, (side) => milliseconds(side[kind]?.ms)],
      [`differ from full depth, ${WORDS[kind]}`, (side) => share(side[kind])],
    ]),
  ].filter(([, show]) => [before, after].some((side) => side && show(side) !== "–"));
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${`Dry run of ${name}`}><table>
    <thead><tr><th scope="col">${name}</th><th scope="col">before</th><th scope="col">after</th></tr></thead>
    <tbody>${rows.map(([title, show]) => {
      const [old, now] = [before, after].map((side) => (side ? show(side) : "–"));
      return html`<tr class=${old === now ? "" : "moved"}><th scope="row">${title}</th><td>${old}</td><td>${now}</td></tr>`;
    })}</tbody></table></div>`;
}

const WORDS = { expected: "recorded texts", live: "live texts" };

function share(tried) {
  if (!tried || tried.disagreement === undefined || tried.disagreement === null) return "–";
  const [low, high] = tried.interval || [];
  return `${percent(tried.disagreement)}${high === undefined ? "" : ` (${percent(low)} to ${percent(high)})`}`;
}
