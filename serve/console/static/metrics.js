/* The server's metrics of the last 15 minutes, asked for as long as the page is open.

A sample is what the replicas have counted since the page was opened. Figures are differences of two
samples.
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

// What is counted, as which figure, and by which label.
const COUNTED = {
  requests_total: ["requests", "code"],
  request_duration_seconds_bucket: ["latency", "le"],
  exits_total: ["exits", "layer"],
  layers_run_total: ["layers", "model"],
  layers_saved_total: ["saved", "model"],
  degraded_answers_total: ["degraded", "model"],
};

// Adds up what the pages of a server, read one after the other, count more than before: the growth of
// each replica first, then the sum, so a replica that ends takes nothing away. One that counts less than
// before has begun anew. One that is met for the first time counts from there on.
export class Growth {
  #last = new Map(); // what each replica has counted of each model
  #grown = new Map();

  // Returns the sample that a page is.
  read(text, at) {
    const sample = { at, models: Object.create(null), aliases: Object.create(null), replicas: { running: 1, wanted: 1 } };
    const counted = new Map();
    for (const line of text.split("\n")) {
      const found = LINE.exec(line);
      if (found) take(sample, counted, found[1], found[2] || "", Number(found[3]));
    }
    for (const [replica, models] of counted) {
      for (const [model, counts] of models) this.#add(replica, model, counts);
      this.#last.set(replica, models);
    }
    for (const [name, of] of Object.entries(sample.models)) of.grown = new Map(this.#grown.get(name));
    return sample;
  }

  #add(replica, model, counts) {
    const known = this.#last.get(replica);
    const before = known ? known.get(model) || new Map() : counts;
    const anew = [...before].some(([series, count]) => (counts.get(series) || 0) < count);
    const grown = into(this.#grown, model);
    for (const [series, count] of counts) add(grown, series, anew ? count : count - (before.get(series) || 0));
  }
}

const into = (map, name) => map.get(name) || map.set(name, new Map()).get(name);
const add = (map, name, number) => map.set(name, (map.get(name) || 0) + number);

function take(sample, counted, name, labelText, number) {
  const [figure, by] = COUNTED[name] || [];
  const reader = READERS[name];
  if (!figure && !reader) return;
  const labels = {};
  for (const [, label, value] of labelText.matchAll(LABEL)) labels[label] = value;
  const { model, replica = "", route } = labels;
  if (OPERATORS.test(route)) return;
  const of = model ? (sample.models[model] ??= { rows: 0, queue_s: 0, level: 0 }) : sample;
  reader?.(of, number, labels, sample);
  if (figure && model) add(into(into(counted, replica), model), `${figure} ${labels[by]}`, number);
}

const READERS = {
  queue_depth: (counts, number) => { counts.rows += number; },
  // Replicas work at the same time: the longest queue is the one to know.
  queue_seconds: (counts, number) => { counts.queue_s = Math.max(counts.queue_s, number); },
  overload_level: (counts, number) => { counts.level = Math.max(counts.level, number); },
  policy_version: (counts, number) => { counts.version = Math.max(counts.version || 0, number); },
  model_info: (counts, _, labels) => { counts.bundle = labels.bundle; },
  alias_info: (_, __, labels, sample) => { sample.aliases[labels.alias] = labels.model; },
  replicas_running: (sample, number) => { sample.replicas.running = number; },
  replicas_wanted: (sample, number) => { sample.replicas.wanted = number; },
};

// What has happened between two samples of a model; null where nothing is known.
export function between(older, newer, name) {
  const [a, b] = [older?.models[name], newer?.models[name]];
  if (!a || !b || newer.at <= older.at) return null;
  const seconds = newer.at - older.at;
  const found = { requests: {}, latency: {}, exits: {}, layers: {}, saved: {}, degraded: {} };
  for (const [series, count] of b.grown) {
    const [figure, label] = series.split(/ (.*)/s);
    found[figure][label] = count - (a.grown.get(series) || 0);
  }
  const sum = (figure, test = () => true) =>
    Object.entries(found[figure]).reduce((all, [label, count]) => all + (test(label) ? count : 0), 0);
  const [answers, layers, saved] = [sum("exits"), sum("layers"), sum("saved")];
  return {
    seconds,
    answers,
    exits: found.exits,
    requests_s: sum("requests") / seconds,
    answers_s: answers / seconds,
    refused_s: sum("requests", (code) => code[0] === "4") / seconds,
    failed_s: sum("requests", (code) => code[0] === "5") / seconds,
    p50: quantile(found.latency, 0.5),
    p95: quantile(found.latency, 0.95),
    p99: quantile(found.latency, 0.99),
    saved: layers + saved ? saved / (layers + saved) : NaN,
    layers: answers ? layers / answers : NaN,
    degraded: answers ? sum("degraded") / answers : NaN,
  };
}

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
    return { at: sample.at, ...found, queue_ms: counts ? 1000 * counts.queue_s : NaN, version: counts?.version };
  });
}

const growth = new Growth();
let turn = 0; // of the watch that goes on; a new key begins another

async function watch() {
  turn += 1;
  const own = turn;
  const before = history.value;
  let refused = false; // asking again would only be refused again, and noted by the server
  try {
    if (document.hidden) return;
    const at = Date.now() / 1000;
    const sample = growth.read(await call("GET", "/metrics"), at);
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
