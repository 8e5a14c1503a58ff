/* Words for numbers. */

// A number with three digits that matter.
export function short(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e6) return `${short(value / 1e6)} M`;
  if (size >= 1e4) return `${short(value / 1e3)} k`;
  if (size >= 100) return value.toFixed(0);
  return size >= 0.001 ? String(Number(value.toPrecision(3))) : value.toExponential(1);
}

export function percent(share) {
  if (share === null || share === undefined || Number.isNaN(share)) return "–";
  const value = 100 * share;
  return `${value >= 10 || value === 0 ? value.toFixed(0) : Number(value.toPrecision(2))} %`;
}

export function milliseconds(ms) {
  if (ms === null || ms === undefined || Number.isNaN(ms)) return "–";
  return ms >= 1000 ? `${short(ms / 1000)} s` : `${short(ms)} ms`;
}

// A rule of the API in a line: "confidence 0.974".
export function ruleText(rule) {
  if (!rule) return "";
  const { rule: kind, ...fields } = rule;
  const main = ["threshold", "patience", "votes", "share", "layer"];
  const shown = (value) => (Array.isArray(value) ? value.map(shown).join(", ")
    : value && typeof value === "object" ? JSON.stringify(value) : String(value));
  const first = main.filter((name) => name in fields).map((name) => shown(fields[name]));
  const rest = Object.entries(fields)
    .filter(([name, value]) => !main.includes(name) && value !== null && !(name === "fallback" && value === "last"))
    .map(([name, value]) => `${name} ${shown(value)}`);
  return [kind, ...first, ...rest].join(" ");
}

// "patch by ops"; what the guardrail or a rollout has done names itself.
export const doneBy = ({ action, by }) => (action === by ? action : `${action} by ${by}`);

export function when(iso) {
  return new Date(iso).toLocaleString([], { dateStyle: "medium", timeStyle: "medium" });
}
