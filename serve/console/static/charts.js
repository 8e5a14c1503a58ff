/* Lines over time by uPlot, and bars of plain HTML. */

import { html, useEffect, useRef } from "./vendor/preact-htm-3.1.1.module.js";
import { percent } from "./format.js";
import { useStore } from "./store.js";
import { theme } from "./theme.js";

const { uPlot } = globalThis;

// From teal, the first layers, to violet, the last: the same colours on every tab.
export function layerColor(layer, layers) {
  const part = layers > 1 ? (Math.max(1, layer) - 1) / (layers - 1) : 0;
  return `oklch(var(--layer-lightness) 0.13 ${180 + 125 * part})`;
}

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// Lines over time. `lines` are [{name, color, values}], `times` seconds; values may be null. `marks` are
// [{at, name}], moments to tell apart what was before from what came after.
export function Lines({ times, lines, label, format, marks = [] }) {
  const frame = useRef();
  const plot = useRef();
  const marked = useRef();
  marked.current = marks;
  const dark = useStore(theme);
  const data = [times, ...lines.map((line) => line.values.map((each) => (Number.isFinite(each) ? each : null)))];
  const latest = lines.map((line) => `${line.name} ${format(line.values.findLast(Number.isFinite))}`).join(", ");
  useEffect(() => {
    plot.current = new uPlot(options(lines, format, frame.current.clientWidth, marked), data, frame.current);
    const resized = new ResizeObserver(() => plot.current.setSize({ width: frame.current.clientWidth, height: HEIGHT }));
    resized.observe(frame.current);
    return () => {
      resized.disconnect();
      plot.current.destroy();
    };
  }, [dark, lines.map((line) => line.name).join()]);
  useEffect(() => plot.current.setData(data), [times]);
  return html`<figure class="lines"><figcaption><strong>${label}</strong>
      ${marks.length > 0 && html`<span class="key mark"><i></i>${marks.at(-1).name}</span>`}
      ${lines.map((line) => html`<span class="key"><i style=${{ background: css(line.color) }}></i>${line.name}</span>`)}
    </figcaption>
    <div ref=${frame} role="img" aria-label=${`${label}, over time. Now: ${latest}${marks.map((mark) => `; ${mark.name}`).join("")}`}></div></figure>`;
}

const HEIGHT = 160;
const LEAST_S = 60; // that the axis of times spans

// Draws a dashed line at each mark.
function draw(plot, marks) {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.strokeStyle = css("--bad");
  ctx.setLineDash([4, 4]);
  for (const { at } of marks) {
    const x = plot.valToPos(at, "x", true);
    if (x < bbox.left) continue;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
}

function options(lines, format, width, marks) {
  const axis = { stroke: css("--pico-muted-color"), grid: { stroke: css("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
  return {
    width,
    height: HEIGHT,
    legend: { show: false },
    hooks: { draw: [(plot) => draw(plot, marks.current)] },
    cursor: { y: false, points: { size: 6 } },
    scales: { x: { range: (_, first, last) => [Math.min(first, last - LEAST_S), last] }, y: { range: (_, low, high) => [0, high > 0 ? high * 1.1 : 1] } },
    axes: [{ ...axis, space: 70, size: 24, values: (_, ticks) => ticks.map((each) => new Date(1000 * each).toLocaleTimeString([], { timeStyle: "short" })), incrs: [60, 120, 180, 300] }, { ...axis, size: 52, values: (_, ticks) => ticks.map(format) }],
    series: [{}, ...lines.map((line) => ({
      label: line.name, stroke: css(line.color), width: 2, points: { show: false },
      fill: lines.length === 1 ? `color-mix(in oklab, ${css(line.color)} 15%, transparent)` : undefined,
    }))],
  };
}

// Where texts can leave: layer 0, if the model has a table, and the exits.
export const layersOf = (model) => [...(model.table ? [0] : []), ...model.exits.map((exit) => exit.layer)];

// A bar of each layer's share; `series` are [{name, counts: {layer: count}}].
export function LayerBars({ layers, series }) {
  const totals = series.map(({ counts }) => Object.values(counts || {}).reduce((all, each) => all + each, 0));
  return html`<table class="layer-bars"><thead><tr><th scope="col">Layer</th>
      ${series.map(({ name }) => html`<th scope="col">${name}</th>`)}</tr></thead>
    <tbody>${layers.map((layer) => html`<tr><th scope="row">${layer}</th>
      ${series.map(({ counts }, i) => {
        const share = totals[i] ? (counts[layer] || 0) / totals[i] : 0;
        return html`<td data-layer=${layer} data-share=${share.toFixed(4)}><div class="bar">
          <i style=${{ width: `${100 * share}%`, background: layerColor(layer, layers.at(-1)) }}></i></div>
          <span>${totals[i] ? percent(share) : "–"}</span></td>`;
      })}</tr>`)}</tbody></table>`;
}
