/* The rule that the reader turns: a profile of the policy, a certified rung, or a rule.

A dial is {profile}, {rung, target} or {rule}: what of them is sent to the server, and the rule that
the browser decides by.
*/

import { html } from "./vendor/preact-htm-3.1.1.module.js";
import { percent, ruleText, short } from "./format.js";
import { isFull } from "./ladder.js";
import { Card } from "./parts.js";
import { KINDS, decidable } from "./rules.js";

const STEPS = 1000;

// The smallest certified bound on answers that differ from full depth; null without one.
export function certified(rung) {
  const found = rung.certificates.filter((each) => each.loss === "disagreement");
  return isFull(rung) ? 0 : found.length ? Math.min(...found.map((each) => each.epsilon)) : null;
}

// For each certified bound the rung with the fewest layers that keeps it, as targets resolve.
export function rungsOf(model) {
  const rungs = (model.ladder?.rungs || []).filter((rung) => certified(rung) !== null);
  const bounds = [...new Set(rungs.map(certified))].filter((bound) => bound > 0).sort((a, b) => a - b);
  const layers = (rung) => rung.expected_layers;
  return bounds.map((bound) => rungs.filter((rung) => certified(rung) <= bound)
    .reduce((best, rung) => (layers(rung) < layers(best) ? rung : best)));
}

export function firstDial(model, policy) {
  return policy ? { profile: "default" } : { rule: started(kindsOf(model)[0], model) };
}

// Profiles follow the policy when it changes.
export function ruleOf(dial, model, policy) {
  if (dial.profile) return (policy.resolved[dial.profile] ?? policy.resolved.default).rule;
  return dial.rule ?? rungsOf(model)[dial.rung].rule;
}

// The rules of a reader's own that a model can follow.
const kindsOf = (model) => Object.keys(KINDS).filter((name) => model.rules.includes(name));

function started(name, model) {
  const { field, start } = KINDS[name];
  const value = field === "layer" ? model.exits[Math.min(1, model.exits.length - 1)].layer : start;
  const near = name === "patience" && model.task === "regression" && { tolerance: 0.1 };
  return field ? { rule: name, [field]: value, ...near } : { rule: name };
}

export function Dial({ model, policy, dial, turn, use }) {
  const rungs = rungsOf(model);
  const profiles = Object.keys(policy?.resolved || {});
  const kind = dial.profile ? `profile ${dial.profile}` : dial.target ? "target" : dial.rule.rule;
  const rule = ruleOf(dial, model, policy);
  const choose = (event) => {
    const [name, profile] = event.target.value.split(" ");
    if (profile) turn({ profile });
    else if (name === "target") turn(rungDial(rungs, 0));
    else turn({ rule: started(name, model) });
  };
  return html`<${Card} title="Rule" note=${model.task === "single_label" ? "decided in the browser" : "decided by the server"}>
    <label>Texts leave by
      <select value=${kind} onChange=${choose}>
        ${profiles.length > 0 && html`<optgroup label="The policy's">${profiles.map((name) => html`<option value=${`profile ${name}`}>${name}</option>`)}</optgroup>`}
        ${rungs.length > 0 && html`<optgroup label="Certified"><option value="target">a target: answers that may differ</option></optgroup>`}
        <optgroup label="A rule of your own">${kindsOf(model).map((name) => html`<option value=${name}>${name}</option>`)}</optgroup>
      </select></label>
    ${dial.target ? html`<${RungSlider} rungs=${rungs} dial=${dial} turn=${turn} />`
      : html`<${RuleSlider} model=${model} rule=${rule} turn=${turn} />`}
    <p class="rule-text"><code>${JSON.stringify(dial.target ?? rule)}</code></p>
    ${!dial.profile && html`<button type="button" class="secondary outline" onClick=${use}>Take it to the policy</button>`}
  </${Card}>`;
}

function rungDial(rungs, rung) {
  return { rung, target: { target: { max_disagreement: certified(rungs[rung]) } } };
}

function RungSlider({ rungs, dial, turn }) {
  const rung = rungs[dial.rung];
  const bound = certified(rung);
  const words = `at most ${percent(bound)} differ from full depth, ${short(rung.expected_layers)} layers`;
  return html`<label>Answers that may differ <output>${percent(bound)}</output>
    <input type="range" min="0" max=${rungs.length - 1} step="1" value=${dial.rung} aria-valuetext=${words}
      onInput=${(event) => turn(rungDial(rungs, Number(event.target.value)))} />
    <small>${words}; by ${ruleText(rung.rule)}</small></label>`;
}

function RuleSlider({ model, rule, turn }) {
  const kind = KINDS[rule.rule];
  if (!kind?.field || !decidable(rule) || Array.isArray(rule[kind.field])) return html`<p><small>${ruleText(rule)}</small></p>`;
  const [low, high] = kind.ends(model.labels.length, model.exits.length);
  const value = rule[kind.field];
  const whole = kind.field === "threshold" ? (number) => number : Math.round;
  const set = (number) => Number.isFinite(number) && turn({ rule: { ...rule, [kind.field]: Math.min(high, Math.max(low, whole(number))) } });
  const scale = kind.field === "threshold" ? decades(low, high, kind.compare !== "<")
    : kind.field === "layer" ? listed(model.exits.map((exit) => exit.layer)) : plain;
  return html`<div class="slider"><label>${kind.field}
      <input type="range" min=${scale.ends(low, high)[0]} max=${scale.ends(low, high)[1]} step="1"
        value=${scale.place(value)} aria-valuetext=${String(value)}
        onInput=${(event) => set(scale.value(Number(event.target.value)))} /></label>
    <input type="number" aria-label=${`${kind.field}, as a number`} min=${low} max=${high} step="any" value=${value}
      onChange=${(event) => set(event.target.valueAsNumber)} /></div>`;
}

const listed = (values) => ({ ends: () => [0, values.length - 1], place: (value) => values.indexOf(value), value: (place) => values[place] });
const plain = { ends: (low, high) => [low, high], place: (value) => value, value: (place) => place };

// A slider on which each factor of ten between a signal and its sure end takes equal room.
function decades(low, high, sureIsHigh) {
  const [sure, unsure] = sureIsHigh ? [high, low] : [low, high];
  const wide = Math.abs(high - low);
  const most = 5; // decades
  return {
    ends: () => [0, STEPS],
    place: (value) => {
      const share = Math.abs(value - sure) / wide;
      const place = share <= 10 ** -most ? 1 : -Math.log10(share) / most;
      return Math.round(STEPS * (sureIsHigh ? place : 1 - place));
    },
    value: (place) => {
      const part = sureIsHigh ? place / STEPS : 1 - place / STEPS;
      if (part >= 1) return sure;
      if (part <= 0) return unsure;
      return Number((sure + (sureIsHigh ? -1 : 1) * wide * 10 ** (-most * part)).toPrecision(sureIsHigh ? 6 : 4));
    },
  };
}
