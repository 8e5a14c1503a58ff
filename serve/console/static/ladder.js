/* The rungs of a model's ladder as points: what a rule costs, and the share of texts that lose something. */

export const LOSSES = {
  disagreement: "Another answer than full depth",
  metric: "Right answers lost",
  score: "Score more than 0.1 off",
  missed: "Flagged texts missed",
  false_alarms: "False alarms",
  reference: "Another answer than the reference",
  reference_score: "Score more than 0.1 off the reference",
};
const OF_REFERENCE = ["reference", "reference_score"];

export const COSTS = {
  layers: { words: "layers", of: (rung) => rung.expected_layers },
  ms: { words: "ms", of: (rung) => rung.expected_ms },
};

// What may be shown: {id, words, loss, rungs} of each loss that rungs are certified for.
export function views(model) {
  const { ladder } = model;
  const decided = ladder.decisions.flatMap(({ flag, rungs }) => lossesOf(rungs).map((loss) => {
    const words = Object.entries(flag).map(([label, bound]) => `${label} ${bound}`).join(", ");
    return { id: `${loss} ${words}`, words: `${LOSSES[loss]}, flag ${words}`, loss, rungs };
  }));
  const plain = lossesOf(ladder.rungs).map((loss) => ({ id: loss, words: LOSSES[loss], loss, rungs: ladder.rungs }));
  const found = [...plain, ...decided];
  return found.length ? found : [{ id: "disagreement", words: LOSSES.disagreement, loss: "disagreement", rungs: ladder.rungs }];
}

function lossesOf(rungs) {
  const certified = new Set(rungs.flatMap((rung) => rung.certificates.map((each) => each.loss)));
  return Object.keys(LOSSES).filter((loss) => certified.has(loss));
}

const certificate = (rung, loss) => rung.certificates.find((each) => each.loss === loss);
// Every text runs in full.
export const isFull = (rung) => rung.rule.rule === "never" && !rung.rule.table;

const exact = (rung, loss) => isFull(rung) && !OF_REFERENCE.includes(loss);

// The share that a rung loses at most, as certified; null without a certificate.
export function bound(rung, loss) {
  return certificate(rung, loss)?.epsilon ?? (exact(rung, loss) ? 0 : null);
}

// The share that it has lost on the certifying texts; null if unknown.
export function seen(rung, loss) {
  const measured = { disagreement: rung.disagreement, reference: rung.reference_disagreement }[loss];
  return certificate(rung, loss)?.observed ?? measured ?? (exact(rung, loss) ? 0 : null);
}

// The cheapest rung for each certified bound, from the strictest on, each cheaper than the one before.
export function frontier(rungs, loss, cost) {
  const certified = rungs.filter((rung) => bound(rung, loss) !== null);
  certified.sort((a, b) => bound(a, loss) - bound(b, loss) || cost(a) - cost(b));
  let best = Infinity;
  return certified.filter((rung) => cost(rung) < best && ((best = cost(rung)), true));
}

// The policy's profiles by what they have become: {names, rule, rung, problem, share, layers, ms}.
// `share` is null where nothing is certified, `rung` undefined where the rule is none of the ladder's.
export function live(model, policy, view) {
  const found = new Map();
  const named = typeof policy?.policy.default === "string" ? policy.policy.default : null;
  for (const [name, become] of Object.entries(policy?.resolved || {})) {
    if (named && name === "default") continue;
    const rule = JSON.stringify(become.rule);
    const rung = [...view.rungs, ...model.ladder.rungs].find((each) => JSON.stringify(each.rule) === rule);
    if (!found.has(rule)) found.set(rule, { names: [], rule: become.rule, rung, problem: become.problem, ...priced(model, become, rung, view.loss) });
    found.get(rule).names.push(name === named ? `${name} (default)` : name);
  }
  return [...found.values()];
}

function priced(model, become, rung, loss) {
  const own = [become.certificate, ...(become.certificates || [])].find((each) => each?.loss === loss);
  const { rule } = become;
  const fixed = rule.rule === "layer" ? rule.layer : null;
  return {
    share: own?.epsilon ?? (rung ? bound(rung, loss) : null),
    layers: become.expected_layers ?? rung?.expected_layers ?? fixed,
    ms: rung?.expected_ms ?? (fixed && msAt(model, fixed)),
    speedup: rung?.speedup,
  };
}

// Milliseconds of rules with a mean number of layers, between those of the ladder's rungs.
export function msAt(model, layers) {
  const rungs = [...model.ladder.rungs].sort((a, b) => a.expected_layers - b.expected_layers);
  const above = rungs.findIndex((rung) => rung.expected_layers >= layers);
  if (above < 0) return null;
  const [high, low] = [rungs[above], rungs[above - 1]];
  if (!low) return (high.expected_ms * layers) / high.expected_layers;
  const part = (layers - low.expected_layers) / (high.expected_layers - low.expected_layers);
  return low.expected_ms + part * (high.expected_ms - low.expected_ms);
}
