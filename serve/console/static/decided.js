/* One text on its way: what each exit says, where it left and why. */

import { html } from "./vendor/preact-htm-3.1.1.module.js";
import { layerColor } from "./charts.js";
import { short } from "./format.js";
import { KINDS } from "./rules.js";

const WORDS = {
  confident: "sure enough",
  patience: "exits agree",
  votes: "enough votes",
  layer: "fixed layer",
  max_layer: "as deep as it may",
  final: "last layer",
  deadline: "out of time",
};

export function Decided({ result, left, rule, layers }) {
  const labelled = "label" in result;
  const differs = labelled && left.label !== result.label;
  return html`<section class=${`card text ${differs ? "differs" : ""}`}>
    <header><h3 dir="auto" title=${result.text}>${result.text}</h3></header>
    <p class="outcome"><strong>${answerOf(result, left)}</strong> at layer ${left.layer} of ${layers}:
      ${" "}${WORDS[left.reason] || left.reason}${compared(left, rule)}
      ${differs && html` <span class="wrong">full depth says ${result.label}</span>`}</p>
    <div class="exits-head" aria-hidden="true"><span>${scored(result.exits[0]) && "score"}</span><span>${left.judged?.[0]?.signal === undefined || left.judged[0].signal === null ? "" : rule.rule.replace("normalized_", "norm. ")}</span></div>
    <ol class="exits" aria-label="Exits">${left.layer === 0 && html`<li class="left" aria-current="step">
        <span class="layer"><span class="hidden">Layer ${" "}</span>0</span><span class="label">${left.label}</span></li>`}${result.exits.map((exit, i) => html`
      <li class=${i > left.place ? "unrun" : i === left.place ? "left" : ""}
        aria-current=${i === left.place ? "step" : null}>
        <span class="layer"><span class="hidden">Layer ${" "}</span>${exit.layer}</span>
        ${scored(exit) && html`<div class="bar"><i style=${{ width: `${100 * exit.score}%`, background: layerColor(exit.layer, layers) }}></i></div>`}
        <span class="label">${spoken(exit)}</span>
        <span class="score">${scored(exit) && exit.score.toFixed(3)}</span>
        <span class="signal">${signalOf(left, i)}</span>
      </li>`)}</ol></section>`;
}

// Values and entities have no score.
const scored = (exit) => Number.isFinite(exit?.score);

const entities = (count) => (count === 1 ? "1 entity" : `${count} entities`);
const spoken = (exit) => exit.label ?? (exit.value !== undefined ? short(exit.value) : entities(exit.num_entities));

function answerOf(result, left) {
  if (left.label) return left.label;
  const exit = result.exits[left.place];
  return exit ? spoken(exit) : "answered";
}

function signalOf(left, place) {
  const signal = left.judged?.[place]?.signal;
  return signal === null || signal === undefined ? "" : digits(signal);
}

// " 0.991 >= 0.974": the signal that let the text leave.
function compared(left, rule) {
  const kind = KINDS[rule.rule];
  const signal = left.judged?.[left.place]?.signal;
  if (!kind?.compare || left.reason === "final" || left.reason === "max_layer" || signal === undefined) return "";
  const field = rule[kind.field];
  return `, ${rule.rule} ${digits(signal)} ${kind.compare} ${digits(Array.isArray(field) ? field[left.place] : field)}`;
}

// Six digits where four would make a 1 of it.
function digits(value) {
  if (value >= 0.9999995 && value < 1) return "0.999999+";
  return value > 0.999 && value < 1 ? value.toFixed(6) : String(Number(value.toPrecision(4)));
}
