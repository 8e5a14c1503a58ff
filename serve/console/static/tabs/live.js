/* Live: what the server does now, and has done in the last 15 minutes. */

import { html } from "../vendor/preact-htm-3.1.1.module.js";
import { LayerBars, Lines, layersOf } from "../charts.js";
import { milliseconds, percent, short } from "../format.js";
import { useFigures } from "../metrics.js";
import { Card, Figure, Problem } from "../parts.js";

function View({ model }) {
  const figures = useFigures(model.name);
  const { now, last, minutes, series } = figures;
  const layers = layersOf(model);
  const kept = `last ${minutes < 1 ? "minute" : `${Math.round(minutes)} minutes`}`;
  return html`
    <${Problem} error=${figures.error} />
    <${Figures} ...${figures} layers=${model.layers} />
    <div class="panels">
      <${Card} title="Exits by layer" note="share of the texts that left there" class="card tall">
        <${LayerBars} layers=${layers} series=${[{ name: "now", counts: now?.exits || {} }, { name: kept, counts: last?.exits || {} }]} />
      </${Card}>
      <${Charts} series=${series} />
    </div>`;
}

function Figures({ now, counts, replicas, layers }) {
  const { running, wanted } = replicas || {};
  const queued = counts?.queue_s > 0.2;
  return html`<div class="figures">
    <${Figure} name="Requests" value=${short(now?.requests_s)} unit="/s" note=${`${short(now?.answers_s)} texts/s`} />
    <${Figure} name="p50" value=${milliseconds(now?.p50)} />
    <${Figure} name="p95" value=${milliseconds(now?.p95)} />
    <${Figure} name="p99" value=${milliseconds(now?.p99)} />
    <${Figure} name="Layers saved" value=${percent(now?.saved)} note=${`${short(now?.layers)} of ${layers} run`} />
    <${Figure} name="Queue" value=${milliseconds(counts && 1000 * counts.queue_s)} note=${`${short(counts?.rows)} waiting`} bad=${queued} />
    <${Figure} name="Errors" value=${short(now && now.failed_s + now.refused_s)} unit="/s" bad=${now?.failed_s > 0} note=${`${short(now?.failed_s)} of them 5xx`} />
    ${(now?.degraded > 0 || counts?.level > 0) && html`<${Figure} name="Degraded" value=${percent(now?.degraded)}
      note=${`overload level ${counts.level}`} bad />`}
    <${Figure} name="Replicas" value=${short(running)} note=${`of ${short(wanted)}`} bad=${running < wanted} />
  </div>`;
}

function Charts({ series }) {
  const times = series.map((point) => point.at);
  const line = (name, color, field) => ({ name, color, values: series.map((point) => point[field]) });
  const marks = series.filter((point, i) => i > 0 && point.version !== series[i - 1].version)
    .map((point) => ({ at: point.at, name: `policy ${point.version}` }));
  const p = ["p50", "p95", "p99"].map((each, i) => line(each, `--series-${i + 1}`, each));
  return [
    ["Requests/s", short, [line("requests", "--series-1", "requests_s")]],
    ["Latency", milliseconds, p],
    ["Layers saved", percent, [line("saved", "--series-1", "saved")]],
    ["Queue", milliseconds, [line("queue", "--series-2", "queue_ms")]],
  ].map(([label, format, lines]) => html`<${Card} key=${label}>
    <${Lines} label=${label} times=${times} format=${format} lines=${lines} marks=${marks} /></${Card}>`);
}

export const live = { id: "live", title: "Live", View };
