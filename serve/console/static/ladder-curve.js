/* The curve of a ladder: cost upwards, the share of texts that may lose something to the right. */

import { html, useRef, useState } from "./vendor/preact-htm-3.1.1.module.js";
import { percent, ruleText, short } from "./format.js";
import { bound, frontier, seen } from "./ladder.js";
import { ticks, useWidth } from "./plot.js";

const HEIGHT = 330;
const EDGE = { left: 52, right: 14, top: 14, bottom: 46 };
const WIDE = 8; // pixels of a letter of a name, about
const NEAR = 28; // pixels around a rung in which it is pointed at

// `marks` are live profiles, [{names, share, cost}]; `audited` what audits say of them,
// [{name, rate, low, high, cost}].
export function LadderCurve({ rungs, loss, cost, marks, audited }) {
  const frame = useRef();
  const width = useWidth(frame);
  const [pointed, point] = useState(null);
  const certified = frontier(rungs, loss, cost.of);
  const best = certified.length > 1 ? certified : []; // full depth alone is no curve
  const plot = plane(rungs, loss, cost, marks, width);
  const find = (event) => {
    const { left, top } = frame.current.getBoundingClientRect();
    point(plot.nearest(event.clientX - left, event.clientY - top));
  };
  return html`<figure class="curve"><figcaption><${Keys} best=${best} audited=${audited} /></figcaption>
    <div ref=${frame}>${width > 0 && html`
      <svg width=${width} height=${HEIGHT} role="img" aria-label=${spoken(best, loss, cost, marks)}
        onPointerMove=${find} onPointerDown=${find} onPointerLeave=${() => point(null)}>
        <${Axes} plot=${plot} cost=${cost} />
        <${Seen} plot=${plot} />
        <${Certified} plot=${plot} best=${best} />
        ${audited.map((each) => html`<${Audited} plot=${plot} found=${each} />`)}
        <${Marks} plot=${plot} marks=${marks} />
        ${pointed && html`<circle class="pointed" cx=${pointed.x} cy=${pointed.y} r="9" />`}
      </svg>`}</div>
    <p class="pointed-at note" aria-hidden="true">${pointed ? said(pointed.rung, loss) : "Point at a rule to read it."}</p></figure>`;
}

// Where things stand on the page, in pixels.
function plane(rungs, loss, cost, marks, width) {
  const certified = rungs.map((rung) => bound(rung, loss)).filter((each) => each !== null);
  const known = rungs.map((rung) => seen(rung, loss)).filter((each) => each !== null);
  const most = Math.max(...certified, 0) || Math.max(...known, 0.01);
  const ends = { share: 1.16 * most, cost: 1.08 * Math.max(...rungs.map(cost.of), ...marks.map((mark) => mark.cost)) };
  const [right, bottom] = [width - EDGE.right, HEIGHT - EDGE.bottom];
  const x = (share) => EDGE.left + ((right - EDGE.left) * share) / ends.share;
  const y = (value) => bottom - ((bottom - EDGE.top) * value) / ends.cost;
  const place = (share, rung) => ({ rung, share, x: x(share), y: y(cost.of(rung)) });
  const all = (share) => rungs.filter((rung) => share(rung, loss) !== null && share(rung, loss) <= ends.share)
    .map((rung) => place(share(rung, loss), rung));
  const [bounds, measured] = [all(bound), all(seen)];
  const far = (a, left, top) => Math.hypot(a.x - left, a.y - top);
  const nearest = (left, top) => [...bounds, ...measured].filter((each) => far(each, left, top) < NEAR)
    .sort((a, b) => far(a, left, top) - far(b, left, top))[0] || null;
  return { ends, x, y, left: EDGE.left, right, top: EDGE.top, bottom, bounds, measured, nearest };
}

function Axes({ plot, cost }) {
  const { x, y, left, right, bottom, top, ends } = plot;
  return html`<g class="axes">
    ${ticks(ends.cost, 7).map((value) => html`<g><line x1=${left} x2=${right} y1=${y(value)} y2=${y(value)} />
      <text x=${left - 8} y=${y(value) + 4} text-anchor="end">${value}</text></g>`)}
    ${ticks(ends.share, right - left < 400 ? 4 : 7).map((share) => html`<g>
      <line x1=${x(share)} x2=${x(share)} y1=${bottom} y2=${bottom + 4} />
      <text x=${x(share)} y=${bottom + 18} text-anchor="middle">${short(100 * share)} %</text></g>`)}
    <text class="title" x=${right} y=${bottom + 38} text-anchor="end">share of the texts</text>
    <text class="title" transform=${`translate(13 ${top}) rotate(-90)`} text-anchor="end">${cost.words} per text, in the mean</text></g>`;
}

// The rungs' losses on the certifying texts.
function Seen({ plot }) {
  const points = plot.measured.toSorted((a, b) => a.y - b.y);
  return html`<g class="seen"><polyline points=${points.map((each) => `${each.x},${each.y}`).join(" ")} />
    ${points.map((each) => html`<circle cx=${each.x} cy=${each.y} r="2.5" />`)}</g>`;
}

// At each share the cheapest rung that is certified for it.
function Certified({ plot, best }) {
  const corners = plot.bounds.filter(({ rung }) => best.includes(rung)).toSorted((a, b) => a.share - b.share || b.y - a.y);
  const path = corners.map((each, i) => (i ? `H${each.x}V${each.y}` : `M${each.x} ${each.y}`)).join("");
  return html`<g class="certified">
    ${plot.bounds.map((each) => html`<circle class="other" cx=${each.x} cy=${each.y} r="2" />`)}
    ${path && html`<path d=${`${path}H${plot.right}`} />`}
    ${corners.map((each) => html`<circle cx=${each.x} cy=${each.y} r="4" />`)}</g>`;
}

// A live profile's audits: their rate, and the interval of the true one.
function Audited({ plot, found }) {
  const y = plot.y(found.cost);
  const within = (share) => Math.min(plot.x(share), plot.right);
  const at = within(found.rate);
  return html`<g class="audited"><title>${found.name}: audits show ${percent(found.rate)}, ${percent(found.low)} to ${percent(found.high)}</title>
    <path d=${`M${within(found.low)} ${y - 4}v8m0 -4H${within(found.high)}m0 -4v8`} />
    <path class="rate" d=${`M${at} ${y - 6}l6 6l-6 6l-6 -6z`} /></g>`;
}

function Marks({ plot, marks }) {
  const placed = [];
  for (const mark of marks.toSorted((a, b) => a.share - b.share)) {
    const [x, y, name] = [plot.x(mark.share), plot.y(mark.cost), mark.names.join(", ")];
    const [before] = placed.slice(-1);
    const tight = before && x < before.end && Math.abs(y - before.y) < 18;
    const late = x + 10 + WIDE * name.length > plot.right;
    placed.push({ x, y, name, late, below: late || tight, end: x + 10 + WIDE * name.length });
  }
  return html`<g class="marks">${placed.map(({ x, y, name, late, below }) => html`<g>
    <circle cx=${x} cy=${y} r="7" />
    <text x=${late ? x - 10 : x + 10} y=${below ? y + 20 : y - 10} text-anchor=${late ? "end" : "start"}>${name}</text></g>`)}</g>`;
}

function Keys({ best, audited }) {
  return html`
    ${best.length > 0 && html`<span><svg width="26" height="12" aria-hidden="true" class="certified"><path d="M1 6H25" /><circle cx="13" cy="6" r="4" /></svg>certified: at most this share</span>`}
    <span><svg width="26" height="12" aria-hidden="true" class="seen"><polyline points="1,6 25,6" /><circle cx="13" cy="6" r="2.5" /></svg>seen on the certifying texts</span>
    ${best.length > 0 && html`<span><svg width="18" height="18" aria-hidden="true" class="marks"><circle cx="9" cy="9" r="7" /></svg>live profile</span>`}
    ${audited.length > 0 && html`<span><svg width="26" height="14" aria-hidden="true" class="audited"><path d="M1 3v8m0 -4H25m0 -4v8" /><path class="rate" d="M13 1l6 6l-6 6l-6 -6z" /></svg>its audits, and the true share's interval</span>`}`;
}

function said(rung, loss) {
  const certificate = rung.certificates.find((each) => each.loss === loss);
  const lost = seen(rung, loss);
  return [
    `${ruleText(rung.rule)}: ${short(rung.expected_layers)} layers, ${short(rung.expected_ms)} ms, ${short(rung.speedup)} times as fast`,
    certificate ? `certified for ${percent(certificate.epsilon)}` : bound(rung, loss) === 0 ? "nothing is lost" : "not certified",
    lost !== null && bound(rung, loss) !== 0 && `${percent(lost)} seen`,
  ].filter(Boolean).join("; ");
}

function spoken(best, loss, cost, marks) {
  const steps = best.map((rung) => `at most ${percent(bound(rung, loss))}: ${short(cost.of(rung))} ${cost.words}`);
  const lives = marks.map((mark) => `${mark.names.join(" and ")} at ${percent(mark.share)} and ${short(mark.cost)} ${cost.words}`);
  return `The cheapest certified rules. ${steps.join("; ")}. Live profiles: ${lives.join("; ") || "none is certified"}. All rules stand in the table below.`;
}
