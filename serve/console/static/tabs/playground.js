/* Playground: texts go through the model layer by layer.

One run to the last layer gives what every exit says. What a rule makes of that is decided here,
at once, whenever the reader turns it.
*/

import { html, useMemo, useState } from "../vendor/preact-htm-3.1.1.module.js";
import { address, call } from "../api.js";
import { LayerBars, layerColor } from "../charts.js";
import { percent, ruleText, short } from "../format.js";
import { Card, Figure, Problem } from "../parts.js";
import { KINDS, decidable, decide } from "../rules.js";
import { Store, useStore } from "../store.js";

const SAMPLES = [
  "The movie was awesome.",
  "A gorgeous, witty, seductive movie.",
  "It never fails to engage us, even if it is not quite what the title promises.",
  "Not exactly a masterpiece, but I did not want it to end.",
];
// What outlives a look at another tab, for each model.
const typed = new Store({});
const runs = new Store({});
const dials = new Store({});

const keep = (store, name, value) => store.set({ ...store.value, [name]: value });

function View({ model, policy, open }) {
  const text = useStore(typed)[model.name] ?? SAMPLES.join("\n");
  const run = useStore(runs)[model.name];
  const rule = useStore(dials)[model.name] ?? firstRule(model, policy);
  const [state, setState] = useState({});
  const ask = async (event) => {
    event?.preventDefault();
    const texts = text.split("\n").map((each) => each.trim()).filter(Boolean);
    setState({ busy: true });
    try {
      const body = { model: model.name, inputs: texts, exit: { rule: "never" }, return: ["exits", "logits"] };
      const answer = await call("POST", "/v1/classify", body);
      keep(runs, model.name, texts.map((each, i) => ({ text: each, ...answer.results[i] })));
      setState({});
    } catch (error) {
      setState({ error });
    }
  };
  return html`
    <div class="columns">
      <${Card} title="Texts" note="one per line">
        <form onSubmit=${ask}>
          <textarea rows="6" aria-label="Texts, one per line" spellcheck="false" value=${text}
            onInput=${(event) => keep(typed, model.name, event.target.value)}></textarea>
          <button type="submit" aria-busy=${String(Boolean(state.busy))}>Run through all layers</button>
        </form>
        <${Problem} error=${state.error} />
      </${Card}>
      <${Dial} model=${model} policy=${policy} rule=${rule} turn=${(next) => keep(dials, model.name, next)} />
    </div>
    ${run && html`<${Results} model=${model} run=${run} rule=${rule} open=${open} />`}`;
}

function firstRule(model, policy) {
  const live = policy?.resolved?.default?.rule;
  return live && decidable(live) ? live : { rule: "confidence", threshold: 0.95 };
}

function Dial({ model, rule, turn }) {
  const kind = KINDS[rule.rule];
  const [low, high] = kind.ends?.(model.labels.length, model.exits.length) ?? [];
  const whole = kind.field !== "threshold";
  const set = (event) => turn({ rule: rule.rule, [kind.field]: Number(event.target.value) });
  const choose = (event) => {
    const next = KINDS[event.target.value];
    turn({ rule: event.target.value, ...(next.field && { [next.field]: next.start }) });
  };
  return html`<${Card} title="Rule" note="decided in the browser">
    <label>Kind<select value=${rule.rule} onChange=${choose}>
      ${Object.keys(KINDS).filter((name) => model.rules.includes(name)).map((name) => html`<option value=${name}>${name}</option>`)}
    </select></label>
    ${kind.field && html`<label>${kind.field} <output>${rule[kind.field]}</output>
      <input type="range" min=${low} max=${high} step=${whole ? 1 : 0.001} value=${rule[kind.field]} onInput=${set} /></label>`}
  </${Card}>`;
}

function Results({ model, run, rule }) {
  const temperatures = useMemo(() => Object.fromEntries(model.exits.map((exit) => [exit.layer, exit.temperature])), [model]);
  const decided = run.map((result) => ({ result, left: decide(rule, result.exits, temperatures) }));
  const layers = decided.reduce((all, each) => all + each.left.layer, 0) / decided.length;
  const same = decided.filter((each) => each.left.label === each.result.label).length;
  return html`
    <div class="figures">
      <${Figure} name="Mean layers" value=${short(layers)} note=${`of ${model.layers}`} />
      <${Figure} name="Layers saved" value=${percent(1 - layers / model.layers)} />
      <${Figure} name="As at full depth" value=${`${same} of ${run.length}`} bad=${same < run.length} />
    </div>
    ${decided.map((each) => html`<${Text} ...${each} rule=${rule} layers=${model.layers} />`)}`;
}

function Text({ result, left, rule, layers }) {
  const why = `left at layer ${left.layer} of ${layers}: ${left.reason}`;
  return html`<section class="card text"><header><h3>${result.text}</h3><small>${why}</small></header>
    <ol class="exits">${result.exits.map((exit, i) => html`
      <li class=${i > left.place ? "unrun" : i === left.place ? "left" : ""}>
        <span class="layer">${exit.layer}</span>
        <div class="bar"><i style=${{ width: percent(exit.score).replace(" ", ""), background: layerColor(exit.layer, layers) }}></i></div>
        <span class="label">${exit.label}</span><span class="score">${exit.score.toFixed(3)}</span>
      </li>`)}</ol></section>`;
}

export const playground = { id: "playground", title: "Playground", View };
