/* A rollout of a candidate: where it stands, its buttons, and the form that starts one.

A server without rollouts answers 404 to all of it: nothing is shown then.
*/

import { html, useEffect, useRef, useState } from "./vendor/preact-htm-3.1.1.module.js";
import { call, passing } from "./api.js";
import { milliseconds, percent, short, when } from "./format.js";
import { Card, Problem } from "./parts.js";
import { Store, useStore } from "./store.js";

const EVERY_MS = 3000;
const BUTTONS = { running: ["promote", "pause", "abort"], paused: ["resume", "promote", "abort"] };
const BUTTON_WORDS = { promote: "Next step", pause: "Pause", resume: "Resume", abort: "Abort" };
const offered = new Store(false); // whether the server has rollouts

export function Rollout({ path, on, changed }) {
  const [state, setState] = useState({});
  const waiting = useRef();
  const shown = useRef();
  const later = () => {
    if (shown.current) waiting.current = setTimeout(look, EVERY_MS);
  };
  const look = () => {
    clearTimeout(waiting.current);
    return call("GET", `${path}/rollout`).then(
      (found) => {
        offered.set(true);
        setState({ found });
        if (found.state in BUTTONS) later();
      },
      (error) => {
        if (passing(error)) return later();
        offered.set(![404, 405, 501].includes(error.status));
        return setState({});
      },
    );
  };
  // A rollout that another client starts makes a new version of the policy.
  useEffect(() => {
    shown.current = true;
    look();
    return () => {
      shown.current = false;
      clearTimeout(waiting.current);
    };
  }, [path, ...on]);
  const [failed, setFailed] = useState(null);
  const { found } = state;
  // The next step is that of the step that is shown, even if the rollout has just moved by itself.
  const press = (action) => call("POST", `${path}/rollout/${action}`, action === "promote" ? { version: found.version } : {}).then(
    () => { setFailed(null); look(); changed(); },
    setFailed,
  );
  if (!found || found.state === "none") return null;
  const figures = html`<${Steps} found=${found} /><${Arms} found=${found} />`;
  return html`<${Card} title=${`Rollout: ${found.state}`} note=${found.why || ""} class="card rollout">
    ${found.note ? html`<p>${found.note}</p>` : ""}
    ${found.state in BUTTONS ? figures : html`<details><summary>Its figures</summary>${figures}</details>`}
    <div class="buttons">${(BUTTONS[found.state] || []).map((action) => html`
      <button type="button" class=${action === "promote" ? "" : "secondary outline"} onClick=${() => press(action)}>
        ${BUTTON_WORDS[action]}</button>`)}</div>
    <${Problem} error=${failed} />
  </${Card}>`;
}

function Steps({ found }) {
  const verdict = ["running", "paused"].includes(found.state) ? `: ${found.verdict}` : "";
  return html`<p><strong>${short(found.percent)} %</strong> follow the candidate, step ${found.step + 1} of
      ${" "}${found.steps.length}${verdict}${found.ends_at ? `, until ${when(found.ends_at)}` : ""}</p>
    <ol class="steps" aria-label="Steps">${found.steps.map((step, i) => html`
      <li class=${i < found.step || found.state === "promoted" ? "done" : i === found.step ? "now" : ""}
        aria-current=${i === found.step ? "step" : null}>${step} %</li>`)}</ol>`;
}

const interval = ({ low, high } = {}, show = percent) => (low === undefined || low === null ? "" : ` (${show(low)} to ${show(high)})`);

function Arms({ found }) {
  const { live, candidate } = found.arms || {};
  if (!live || !candidate) return null;
  const bound = (name, show) => (found.bounds?.[name] === undefined ? "" : ` at most ${show(found.bounds[name])}`);
  const rows = [
    ["answers", (arm) => short(arm.answers)],
    [`errors${bound("errors", percent)}`, (arm) => `${short(arm.errors)}, ${percent(arm.error_rate?.rate)}${interval(arm.error_rate)}`, "errors"],
    [`layers${bound("layers", short)}`, (arm) => `${short(arm.layers?.mean)}${interval(arm.layers, short)}`, "layers"],
    [`differ from full depth${bound("disagreement", percent)}`, (arm) => `${percent(arm.disagreement?.rate)}${interval(arm.disagreement)}`, "disagreement"],
    [`p99${bound("p99_ms", milliseconds)}`, (arm) => `${milliseconds(arm.p99_ms)}${arm.slow ? `, ${percent(arm.slow.rate)} over` : ""}`, "p99_ms"],
  ];
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Both arms"><table>
    <thead><tr><td></td><th scope="col">live</th><th scope="col">candidate</th><th scope="col">verdict</th></tr></thead>
    <tbody>${rows.map(([title, show, verdict]) => html`<tr><th scope="row">${title}</th><td>${show(live)}</td><td>${show(candidate)}</td>
      <td class=${candidate.verdicts?.[verdict] || ""}>${candidate.verdicts?.[verdict] || ""}</td></tr>`)}</tbody></table></div>`;
}

// Fields of the form: name in the request, words, first value.
const BOUNDS = [["disagreement", "Differ from full depth, %", 1, 100], ["p99_ms", "p99, ms", "", 1], ["layers", "Mean layers", "", 1], ["errors", "Errors, %", "", 100]];

export function StartRollout({ path, read, why, changed }) {
  const shown = useStore(offered);
  const [state, setState] = useState({});
  if (!shown) return null;
  const start = async (event) => {
    event.preventDefault();
    const fields = new FormData(event.target);
    const numbers = (name) => Number(fields.get(name));
    const bounds = BOUNDS.filter(([name]) => fields.get(name) !== "").map(([name, , , scale]) => [name, numbers(name) / scale]);
    try {
      setState({ busy: true });
      await call("POST", `${path}/rollout`, {
        policy: read(),
        steps: String(fields.get("steps")).split(/[ ,]+/).filter(Boolean).map(Number),
        hold_s: numbers("hold_s"),
        min_answers: numbers("min_answers"),
        bounds: Object.fromEntries(bounds),
        on_inconclusive: fields.get("on_inconclusive"),
        ...(why && { why }),
      });
      setState({});
      changed();
    } catch (error) {
      setState({ error });
    }
  };
  return html`<details class="start-rollout"><summary>Roll it out step by step</summary>
    <form onSubmit=${start}>
      <div class="fields">
        <label>Steps, %<input name="steps" defaultValue="5, 25, 50, 100" required /></label>
        <label>Each for, s<input name="hold_s" type="number" min="1" defaultValue="600" required /></label>
        <label>And for answers<input name="min_answers" type="number" min="1" defaultValue="1000" required /></label>
        ${BOUNDS.map(([name, words, value]) => html`<label>${words}, at most<input name=${name} type="number" min="0" step="any" defaultValue=${value} /></label>`)}
        <label>If it stays unclear<select name="on_inconclusive">
          ${["pause", "promote", "abort"].map((each) => html`<option value=${each}>${each}</option>`)}</select></label>
      </div>
      <button type="submit" aria-busy=${String(Boolean(state.busy))}>Start the rollout</button>
    </form>
    <${Problem} error=${state.error} /></details>`;
}
