/* The server's metrics of the last 15 minutes, asked for as long as the page is open.

A sample is the sum over all replicas of what one model has counted up to a moment. Figures are
differences of two samples.
*/

import { useEffect, useState } from "./vendor/preact-htm-3.1.1.module.js";
import { call, key } from "./api.js";
import { Store, useStore } from "./store.js";

export const EVERY_S = 2;
export const KEPT_S = 15 * 60;
const NOW_S = 10; // what figures of now are the mean of

const LINE = /^offramp_([a-z_]+)(?:\{(.*)\})? (\S+)/;
const LABEL = /([a-z_]+)="((?:[^"\\]|\\.)*)"/g;
// Reads of a model and changes of it are no classifications.
const OPERATORS = /^\/v1\/(models|aliases)(\/[^:]*)?$/;

// {samples, error}: samples are {at (s), models: {name: counts}, replicas: {running, wanted}}.
export const history = new Store({ samples: [], error: null });

// Models, bundles, versions of policies, and aliases: it changes when another client changes one of them.
export const serving = new Store("");

// Returns the sample that a page of /metrics is.
export function read(text, at) {
  const sample = { at, models: Object.create(null), aliases: Object.create(null), replicas: { running: 1, wanted: 1 } };
  const of = (name) => (sample.models[name] ??= { requests: {}, latency: {}, exits: {}, reasons: {}, layers: 0, saved: 0, rows: 0, queue_s: 0, extra: {} });
  for (const line of text.split("\n")) {
    const found = LINE.exec(line);
    if (!found) continue;
    const [, name, labelText, number] = found;
    const add = READERS[name];
    if (!add) continue;
    const labels = {};
    for (const [, label, value] of (labelText || "").matchAll(LABEL)) labels[label] = value;
    add(labels.model ? of(labels.model) : sample, labels, Number(number), sample);
  }
  return sample;
}

const adding = (field) => (counts, _, number) => { counts[field] += number; };
const into = (field, label) => (counts, labels, number) => {
  if (counts[field]) counts[field][labels[label]] = (counts[field][labels[label]] || 0) + number;
};

const READERS = {
  requests_total: (counts, labels, number) => {
    if (number && counts.requests && !OPERATORS.test(labels.route)) into("requests", "code")(counts, labels, number);
  },
  request_duration_seconds_bucket: (counts, labels, number) => {
    if (counts.latency && !OPERATORS.test(labels.route)) into("latency", "le")(counts, labels, number);
  },
  exits_total: (counts, labels, number) => {
    into("exits", "layer")(counts, labels, number);
    into("reasons", "reason")(counts, labels, number);
  },
  layers_run_total: adding("layers"),
  layers_saved_total: adding("saved"),
  queue_depth: adding("rows"),
  // Replicas work at the same time: the longest queue is the one to know.
  queue_seconds: (counts, _, number) => { counts.queue_s = Math.max(counts.queue_s, number); },
  policy_version: (counts, _, number) => { counts.version = Math.max(counts.version || 0, number); },
  model_info: (counts, labels) => { counts.bundle = labels.bundle; },
  alias_info: (_, labels, __, sample) => { sample.aliases[labels.alias] = labels.model; },
  replicas_running: (_, __, number, sample) => { sample.replicas.running = number; },
  replicas_wanted: (_, __, number, sample) => { sample.replicas.wanted = number; },
  degraded_answers_total: (counts, _, number) => { counts.extra.degraded = (counts.extra.degraded || 0) + number; },
  overload_level: (counts, _, number) => { counts.extra.level = Math.max(counts.extra.level || 0, number); },
  rollout_percent: (counts, _, number) => { counts.extra.rollout = number; },
};

// What has happened between two samples of a model; null where nothing is known.
export function between(older, newer, name) {
  const [a, b] = [older?.models[name], newer?.models[name]];
  if (!a || !b || newer.at <= older.at) return null;
  const seconds = newer.at - older.at;
  const requests = difference(a.requests, b.requests);
  const exits = difference(a.exits, b.exits);
  const answers = total(exits);
  const codes = Object.entries(requests);
  const sum = (test) => codes.reduce((all, [code, count]) => all + (test(code) ? count : 0), 0);
  const latency = difference(a.latency, b.latency);
  const layers = Math.max(0, b.layers - a.layers);
  const saved = Math.max(0, b.saved - a.saved);
  return {
    seconds,
    answers,
    exits,
    requests_s: sum(() => true) / seconds,
    answers_s: answers / seconds,
    refused_s: sum((code) => code[0] === "4") / seconds,
    failed_s: sum((code) => code[0] === "5") / seconds,
    p50: quantile(latency, 0.5),
    p95: quantile(latency, 0.95),
    p99: quantile(latency, 0.99),
    saved: layers + saved ? saved / (layers + saved) : NaN,
    layers: answers ? layers / answers : NaN,
    degraded: answers ? ((b.extra.degraded || 0) - (a.extra.degraded || 0)) / answers : NaN,
  };
}

// A count that has become smaller was begun anew: a replica has ended.
function difference(a, b) {
  const keys = Object.keys(b);
  const shrunk = keys.some((each) => b[each] < (a[each] || 0));
  return Object.fromEntries(keys.map((each) => [each, shrunk ? 0 : b[each] - (a[each] || 0)]));
}

const total = (counts) => Object.values(counts).reduce((all, count) => all + count, 0);

// The value (ms) below which a share of a histogram lies, as Prometheus reckons it.
export function quantile(cumulative, share) {
  const buckets = Object.entries(cumulative)
    .map(([bound, count]) => [bound === "+Inf" ? Infinity : Number(bound), count])
    .sort((a, b) => a[0] - b[0]);
  const all = buckets.at(-1)?.[1] || 0;
  if (!all) return NaN;
  let [low, below] = [0, 0];
  for (const [bound, count] of buckets) {
    if (count >= share * all) {
      if (bound === Infinity) return 1000 * low;
      return 1000 * (low + (bound - low) * ((share * all - below) / (count - below || 1)));
    }
    [low, below] = [bound, count];
  }
  return 1000 * low;
}

// Figures of a model: `now`, of the `last` 15 minutes, the newest `counts`, and `series` over time.
export function useFigures(name) {
  const { samples, error } = useStore(history);
  const [series, setSeries] = useState([]);
  useEffect(() => setSeries(seriesOf(samples, name)), [samples, name]);
  const newest = samples.at(-1);
  const recent = samples.findLast((each) => newest && each.at <= newest.at - NOW_S) || samples[0];
  return {
    error,
    series,
    now: between(recent, newest, name),
    last: between(samples[0], newest, name),
    minutes: newest ? (newest.at - samples[0].at) / 60 : 0,
    counts: newest?.models[name],
    replicas: newest?.replicas,
  };
}

// One point for each sample, over the ten seconds before it.
function seriesOf(samples, name) {
  let start = 0;
  return samples.slice(1).map((sample, i) => {
    while (samples[start + 1].at <= sample.at - NOW_S && start < i) start += 1;
    const found = between(samples[start], sample, name) || {};
    const counts = sample.models[name];
    return { at: sample.at, ...found, queue_ms: counts ? 1000 * counts.queue_s : NaN };
  });
}

let turn = 0; // of the watch that goes on; a new key begins another

async function watch() {
  turn += 1;
  const own = turn;
  const before = history.value;
  let refused = false; // asking again would only be refused again, and noted by the server
  try {
    if (document.hidden) return;
    const at = Date.now() / 1000;
    const sample = read(await call("GET", "/metrics"), at);
    const samples = [...before.samples.filter((each) => each.at > at - KEPT_S), sample];
    history.set({ samples, error: null });
    const models = Object.entries(sample.models).map(([name, { bundle, version }]) => [name, bundle, version]);
    const served = JSON.stringify([models.sort(), Object.entries(sample.aliases).sort()]);
    if (serving.value && serving.value !== served) serving.set(served);
    serving.value = served;
  } catch (error) {
    refused = error.status >= 400 && error.status < 500 && error.status !== 429;
    history.set({ samples: before.samples, error });
  } finally {
    if (own === turn && !refused) waiting = setTimeout(watch, 1000 * EVERY_S);
  }
}

let waiting = setTimeout(watch, 0);
key.follow(() => {
  clearTimeout(waiting);
  watch();
});
