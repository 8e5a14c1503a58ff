"""A run's figures as JSON."""

import math
from collections import Counter
from dataclasses import asdict
from itertools import pairwise
from typing import Any

import numpy as np

from loadtest.http.client import Json
from loadtest.http.metrics_page import MetricsPage, Spread, mean_layer
from loadtest.load.figures import Figures, RampResult
from loadtest.load.samples import SERVER_TIMES, Samples
from loadtest.load.shortfall import shortfalls

_STAGES = ("tokenize", "queue", "segment", "judge")


def document(figures: Figures) -> Json:
    """Return the content of the report, with null for NaN."""
    samples = figures.samples
    found = {
        "began_at": figures.began_at,
        "seconds": figures.seconds,
        "total": figures.total._asdict(),
        "kinds": [kind._asdict() for kind in figures.kinds],
        "errors": figures.errors,
        "not_sent": samples.not_sent,
        "retried": dict(samples.retried),
        "first_tries_failed": samples.first_failed,
        "first_failure_s": samples.first_failure_s,
        "longest_gap_s": samples.longest_gap_s,
        "accuracy": samples.accuracy,
        "exits": _exits(figures),
        "client": _client(samples),
        "server": _server(figures.metrics or MetricsPage({})),
        "cost": _cost(figures),
        "fell_short": shortfalls(figures),
        "ended_replicas": sorted(figures.ended_replicas),
        "ramp": _ramp(figures.ramp) if figures.ramp else None,
        "drift": _drift(figures),
    }
    return _without_nan(found)


def _exits(figures: Figures) -> Json:
    seen, depth = figures.seen, figures.samples.layers
    by_layer, by_reason = dict.fromkeys(range(1, depth + 1), 0), Counter[str]()
    for exit_, count in seen.items():
        by_layer[exit_.layer] = by_layer.get(exit_.layer, 0) + count
        by_reason[exit_.reason] += count
    mean = mean_layer(seen)
    return {
        "answers": seen.total(),
        "counted_by_server": None if figures.counted is None else figures.counted.total(),
        "by_layer": by_layer,
        "by_reason": dict(by_reason),
        "mean_layer": mean,
        "layers": depth,
        "layers_saved": 1 - mean / depth if depth else math.nan,
        "by_policy_version": dict(sorted(figures.samples.versions.items())),
    }


def _client(samples: Samples) -> Json:
    """Return the client's times beside the server's for the same requests, in ms."""
    columns = {
        "due_to_sent": samples.column("late_ms"),
        "due_to_answer": samples.column("latency_ms"),
    }
    for name, column in zip(SERVER_TIMES, samples.server_ms, strict=True):
        columns[f"server_{name.removesuffix('_ms')}"] = np.array(column)
    return {name: _quantiles(column[~samples.failures]) for name, column in columns.items()}


def _quantiles(column: np.ndarray[Any, Any]) -> dict[str, float]:
    known = column[~np.isnan(column)]
    if not len(known):
        return dict.fromkeys(("mean", "p50", "p95", "p99", "max"), math.nan)
    p50, p95, p99, most = np.quantile(known, (0.5, 0.95, 0.99, 1.0)).tolist()
    return {"mean": float(known.mean()), "p50": p50, "p95": p95, "p99": p99, "max": most}


def _server(metrics: MetricsPage) -> Json:
    """Return the server's own counts and times over the run, in ms."""
    run = metrics.total("offramp_layers_run_total")
    saved = metrics.total("offramp_layers_saved_total")
    tokens = metrics.total("offramp_batch_tokens_total")
    padding = metrics.total("offramp_padding_tokens_total")
    stages = {s: _ms(metrics.spread("offramp_stage_duration_seconds", stage=s)) for s in _STAGES}
    rejected = metrics.by("offramp_rejected_total", "code")
    return {
        "requests_by_code": metrics.by("offramp_requests_total", "code", route="/v1/classify"),
        "rejected_by_code": {code: n for code, n in rejected.items() if n},
        "http": _ms(metrics.spread("offramp_request_duration_seconds", route="/v1/classify")),
        "stages": stages,
        "rows_per_batch": metrics.spread("offramp_batch_rows").mean,
        "layers_saved": saved / (run + saved) if run + saved else math.nan,
        "padding": padding / (tokens + padding) if tokens + padding else math.nan,
    }


def _ms(spread: Spread) -> Json:
    times = {name: 1e3 * getattr(spread, name) for name in ("mean", "p50", "p99")}
    return {"count": spread.count} | times


def _cost(figures: Figures) -> Json:
    cost, requests = figures.cost, max(figures.total.requests, 1)
    server_s, generator_s = cost.server_cpu_s, cost.generator_cpu_s
    return {
        **cost._asdict(),
        "server_cpu_s_per_1000": None if server_s is None else 1e3 * server_s / requests,
        "generator_cpu_s_per_1000": 1e3 * generator_s / requests,
        "generator_cores": generator_s / figures.seconds if figures.seconds else math.nan,
    }


def _ramp(ramp: RampResult) -> Json:
    return {
        "steps": [asdict(step) for step in ramp.steps],
        "knee": asdict(ramp.knee) if ramp.knee else None,
        "reason": ramp.reason,
    }


def _drift(figures: Figures) -> Json:
    """Return the first and the last third of the run, for a soak test."""
    began = figures.samples.column("began_s")
    answered = ~figures.samples.failures
    latency = figures.samples.column("latency_ms")
    edges = (0.0, figures.seconds / 3, 2 * figures.seconds / 3, math.inf)
    thirds = [latency[answered & (began >= low) & (began < high)] for low, high in pairwise(edges)]
    first, last = _quantiles(thirds[0]), _quantiles(thirds[-1])
    return {
        "first_third_p99_ms": first["p99"],
        "last_third_p99_ms": last["p99"],
        "first_third_answers": len(thirds[0]),
        "last_third_answers": len(thirds[-1]),
    }


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
