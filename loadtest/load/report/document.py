"""A run's figures as JSON."""

import math
from dataclasses import asdict
from itertools import pairwise
from typing import Any

import numpy as np

from loadtest.http.client import Json
from loadtest.http.exit_counts import mean_layer
from loadtest.http.metrics_page import Scrape, Spread
from loadtest.load.figures import Figures
from loadtest.load.samples import Samples

_STAGES = ("tokenize", "queue", "segment", "judge")


def document(figures: Figures) -> Json:
    """Return everything that the report says, without NaN."""
    found = {
        "began_at": figures.began_at,
        "seconds": figures.seconds,
        "total": asdict(figures.total),
        "kinds": [asdict(kind) for kind in figures.kinds],
        "errors": figures.errors,
        "not_sent": figures.samples.not_sent,
        "retried": dict(figures.samples.retried),
        "first_tries_failed": figures.samples.first_failed,
        "first_failure_s": figures.samples.first_failure_s,
        "longest_gap_s": figures.samples.longest_gap_s,
        "accuracy": figures.samples.accuracy,
        "exits": _exits(figures),
        "client": _client(figures.samples),
        "server": _server(figures.moved),
        "cost": _cost(figures),
        "ramp": _ramp(figures),
        "drift": _drift(figures),
    }
    return _without_nan(found)


def _exits(figures: Figures) -> Json:
    seen, depth = figures.seen, figures.samples.layers
    by_layer = {layer: 0 for layer in range(1, depth + 1)}
    for leaving, count in seen.items():
        by_layer[leaving.layer] = by_layer.get(leaving.layer, 0) + count
    mean = mean_layer(seen)
    return {
        "answers": seen.total(),
        "counted_by_server": figures.counted.total() if figures.metered else None,
        "by_layer": by_layer,
        "by_reason": _by_reason(figures),
        "mean_layer": mean,
        "layers": depth,
        "layers_saved": 1 - mean / depth if depth else math.nan,
        "by_policy_version": dict(sorted(figures.samples.versions.items())),
    }


def _by_reason(figures: Figures) -> dict[str, int]:
    reasons: dict[str, int] = {}
    for leaving, count in figures.seen.items():
        reasons[leaving.reason] = reasons.get(leaving.reason, 0) + count
    return reasons


def _client(samples: Samples) -> Json:
    """Return the client's times beside the server's for the same requests, in ms."""
    answered = ~samples.failures
    columns = {
        "due_to_sent": samples.column("late_ms"),
        "due_to_answer": samples.column("latency_ms"),
        "server_queue": np.array(samples.server_ms[0]),
        "server_compute": np.array(samples.server_ms[1]),
        "server_total": np.array(samples.server_ms[2]),
    }
    return {name: _quantiles(column[answered]) for name, column in columns.items()}


def _quantiles(column: np.ndarray[Any, Any]) -> dict[str, float]:
    known = column[~np.isnan(column)]
    if not len(known):
        return dict.fromkeys(("mean", "p50", "p95", "p99", "max"), math.nan)
    p50, p95, p99, most = np.quantile(known, (0.5, 0.95, 0.99, 1.0)).tolist()
    return {"mean": float(known.mean()), "p50": p50, "p95": p95, "p99": p99, "max": most}


def _server(moved: Scrape) -> Json:
    """Return the server's own counts and times over the run, in ms."""
    run = moved.total("offramp_layers_run_total")
    saved = moved.total("offramp_layers_saved_total")
    tokens = moved.total("offramp_batch_tokens_total")
    padding = moved.total("offramp_padding_tokens_total")
    stages = {
        stage: _ms(moved.spread("offramp_stage_duration_seconds", stage=stage)) for stage in _STAGES
    }
    return {
        "requests_by_code": moved.by("offramp_requests_total", "code", route="/v1/classify"),
        "rejected_by_code": {
            code: n for code, n in moved.by("offramp_rejected_total", "code").items() if n
        },
        "http": _ms(moved.spread("offramp_request_duration_seconds", route="/v1/classify")),
        "stages": stages,
        "rows_per_batch": moved.spread("offramp_batch_rows").mean,
        "layers_saved": saved / (run + saved) if run + saved else math.nan,
        "padding": padding / (tokens + padding) if tokens + padding else math.nan,
    }


def _ms(spread: Spread) -> Json:
    times = {name: 1e3 * getattr(spread, name) for name in ("mean", "p50", "p99")}
    return {"count": spread.count} | times


def _cost(figures: Figures) -> Json:
    spent, requests = figures.spent, max(figures.total.requests, 1)
    server_s, generator_s = spent.server_cpu_s, spent.generator_cpu_s
    return {
        "server_cpu_s": server_s,
        "server_cpu_s_per_1000": None if server_s is None else 1e3 * server_s / requests,
        "server_memory_before_mb": spent.server_memory_before_mb,
        "server_memory_mb": spent.server_memory_mb,
        "generator_cpu_s": generator_s,
        "generator_cpu_s_per_1000": 1e3 * generator_s / requests,
        "generator_cores": generator_s / figures.seconds if figures.seconds else math.nan,
    }


def _ramp(figures: Figures) -> Json | None:
    if figures.ramped is None:
        return None
    found = figures.ramped
    return {
        "steps": [asdict(step) for step in found.steps],
        "knee": asdict(found.knee) if found.knee else None,
        "reason": found.reason,
    }


def _drift(figures: Figures) -> Json:
    """Return the first and the last third of the run: what a soak test looks at."""
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
