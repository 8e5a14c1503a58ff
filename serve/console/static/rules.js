/* Exit rules decided in the browser, from what every exit has said of a text.

As serve/rules decides them, of models that give one label per text: a test compares the two.
*/

const softmax = (logits, temperature = 1) => {
  const top = Math.max(...logits);
  const e = logits.map((each) => Math.exp((each - top) / temperature));
  const sum = e.reduce((a, b) => a + b, 0);
  return e.map((each) => each / sum);
};
const entropy = (logits) => -softmax(logits).reduce((all, p) => all + (p > 0 ? p * Math.log(p) : 0), 0);
const margin = (logits) => {
  const [first, second = 0] = softmax(logits).sort((a, b) => b - a);
  return first - second;
};

// What a reader can turn: the signal of an exit, how it is compared, and the dial's ends.
export const KINDS = {
  confidence: { field: "threshold", compare: ">=", signal: (exit, t) => Math.max(...softmax(exit.logits, t)), ends: (labels) => [1 / labels, 1], start: 0.95 },
  entropy: { field: "threshold", compare: "<", signal: (exit) => entropy(exit.logits), ends: (labels) => [0, Math.ceil(1000 * Math.log(labels)) / 1000], start: 0.2 },
  normalized_entropy: { field: "threshold", compare: "<", signal: (exit) => entropy(exit.logits) / Math.log(exit.logits.length), ends: () => [0, 1], start: 0.3 },
  margin: { field: "threshold", compare: ">", signal: (exit) => margin(exit.logits), ends: () => [0, 1], start: 0.9 },
  patience: { field: "patience", compare: ">=", counts: agreement, ends: (_, exits) => [1, Math.max(1, exits - 1)], start: 2, reason: "patience" },
  voting: { field: "votes", compare: ">=", counts: votes, ends: (_, exits) => [1, exits], start: 3, reason: "votes" },
  layer: { field: "layer", ends: () => [1, Infinity], reason: "layer" },
  never: {},
};

const BEYOND = { ">=": (a, b) => a >= b, "<": (a, b) => a < b, ">": (a, b) => a > b };

function agreement(exits) {
  let streak = 0;
  return exits.map((exit, i) => {
    streak = i > 0 && exit.label === exits[i - 1].label ? streak + 1 : 0;
    return { signal: streak };
  });
}

function votes(exits) {
  const counts = Object.create(null); // a label may be called as a property of objects is
  return exits.map((exit) => {
    counts[exit.label] = (counts[exit.label] || 0) + 1;
    const [most, next = 0] = Object.values(counts).sort((a, b) => b - a);
    const leader = Object.keys(counts).find((label) => counts[label] === most);
    return { signal: most, tie: most === next, label: most === next ? exit.label : leader };
  });
}

// Tells whether the browser can decide a rule as the server does.
export function decidable(rule) {
  const kind = KINDS[rule.rule];
  const plain = ["rule", kind?.field, "min_layer", "max_layer", "fallback"];
  return Boolean(kind) && Object.keys(rule).every((name) => plain.includes(name))
    && (rule.fallback ?? "last") === "last";
}

// Returns what a rule makes of a text's exits: {layer, reason, label, signals}.
export function decide(rule, exits, temperatures = {}) {
  const kind = KINDS[rule.rule];
  const threshold = (i) => (Array.isArray(rule[kind.field]) ? rule[kind.field][i] : rule[kind.field]);
  const judged = kind.counts ? kind.counts(exits)
    : exits.map((exit) => ({ signal: kind.signal?.(exit, temperatures[exit.layer]) ?? null }));
  const label = (i) => judged[i].label ?? exits[i].label;
  for (const [i, exit] of exits.entries()) {
    const early = rule.rule === "layer" ? exit.layer >= rule.layer
      : rule.rule !== "never" && !judged[i].tie && BEYOND[kind.compare](judged[i].signal, threshold(i));
    const left = (reason) => ({ layer: exit.layer, place: i, reason, label: label(i), judged });
    if (i === exits.length - 1) return left("final");
    if (early && exit.layer >= (rule.min_layer || 0)) return left(kind.reason || "confident");
    if (rule.max_layer && exit.layer >= rule.max_layer) return left("max_layer");
  }
  return null;
}
