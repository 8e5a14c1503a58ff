"""The figures of a load test, as the document that report.json holds."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from loadtest.http.client import Json
from loadtest.http.metrics_page import ExitCounts, MetricsPage, Spread, mean_layer
from loadtest.load.plans import Ramp
from loadtest.load.samples import SERVER_TIMES, Column, Samples

_STAGES = ("tokenize", "queue", "segment", "judge")
# Shares of what was asked for; starting users and random arrivals explain smaller differences.
_LEAST_USERS, _LEAST_REQUESTS = 0.95, 0.9
# A request that is due may wait so long in the load generator; longer, and the rate is not kept.
_MOST_LATE_MS = 100.0
_MOST_CORES = 0.8


@dataclass(frozen=True)
class Run:
    """A whole run."""

    samples: Samples  # every request
    seconds: float  # how long requests were sent
    began_at: float = 0.0  # in seconds since the epoch
    raised: dict[str, int] = field(default_factory=dict)  # message -> how often, of users
    users: Sequence[tuple[float, int]] = ()  # (seconds since the beginning, how many)
    wanted_users: Sequence[int] = ()  # at the moments of `users`
    rate_per_user: float | None = None  # of an open loop
    # How much the server's metrics grew; None if they were not read.
    metrics: MetricsPage | None = None
    # Replicas that ended on the way: what they counted last is in no figure of the server.
    ended_replicas: frozenset[str] = frozenset()
    generator_cpu_s: float = 0.0  # of the process that made the load
    # Of the server's processes; None if they were not started here.
    server_cpu_s: float | None = None
    server_memory_before_mb: float | None = None
    server_memory_mb: float | None = None
    ramp: Ramp | None = None
    charts: str = ""  # throughput, latency and users over time, as Locust's page of HTML

    @property
    def errors(self) -> dict[str, int]:
        """Message -> how often."""
        return dict(self.samples.errors) | self.raised

    @property
    def counted(self) -> ExitCounts | None:
        """Exits that the server counted; None if its metrics were not read."""
        return self.metrics.exits() if self.metrics else None


def document(run: Run) -> Json:
    """Return all figures, with null for NaN."""
    samples, columns = run.samples, run.samples.columns()
    failed = columns["failed"] > 0
    kinds, every = np.array(samples.kinds, dtype=object), np.ones(len(failed), dtype=bool)
    began_s, latency_ms = columns["began_s"], columns["latency_ms"]
    right, known = samples.right

    def of(kind: str, rows: Any) -> Json:
        answered = _quantiles(latency_ms[rows & ~failed])
        times = {f"{name}_ms": answered[name] for name in ("p50", "p95", "p99")}
        num, failures = int(rows.sum()), int((rows & failed).sum())
        rate = (num - failures) / run.seconds if run.seconds else 0.0
        return {"kind": kind, "requests": num, "failures": failures, **times, "per_second": rate}

    client = {"due_to_sent": columns["late_ms"], "due_to_answer": latency_ms}
    client |= {f"server_{name.removesuffix('_ms')}": columns[name] for name in SERVER_TIMES}
    return _without_nan({
        "began_at": run.began_at,
        "seconds": run.seconds,
        "total": of("all", every),
        "kinds": [of(kind, kinds == kind) for kind in sorted(set(samples.kinds))],
        "errors": run.errors,
        "not_sent": samples.not_sent,
        "retried": dict(samples.retried),
        "first_tries_failed": samples.first_failed,
        "first_failure_s": float(began_s[failed].min()) if failed.any() else None,
        "longest_gap_s": _longest_gap_s(began_s, latency_ms / 1e3, failed),
        "accuracy": right / known if known else None,
        "exits": _exits(run),
        "client": {name: _quantiles(column[~failed]) for name, column in client.items()},
        "server": _server(run.metrics or MetricsPage({})),
        "cost": _cost(run),
        "fell_short": shortfalls(run),
        "ended_replicas": sorted(run.ended_replicas),
        "ramp": ramp_figures(run.ramp) if run.ramp else None,
        "drift": _drift(began_s, latency_ms, failed, run.seconds),
    })  # fmt: skip


def ramp_figures(ramp: Ramp) -> Json:
    """Return the steps of a ramp, its knee, and why it ended."""
    knee = ramp.knee()
    return {
        "steps": [step._asdict() for step in ramp.steps],
        "knee": knee._asdict() if knee else None,
        "reason": ramp.reason,
    }


def problems(run: Run, exclusive: bool) -> list[str]:
    """Return what makes the run a failure; empty if it was a success.

    Args:
        run: of a ramp, some requests may fail, because it goes on until they do.
        exclusive: there were no other clients, so the server's counters must equal the answers.
    """
    samples, found = run.samples, []
    failures = round(float(samples.columns()["failed"].sum()))
    if failures == len(samples.kinds):
        found.append("no request was answered")
    if run.errors and not run.ramp:
        found.append(f"{failures} of {len(samples.kinds)} requests failed")
    if run.counted is None:
        return found
    missing, surplus = samples.seen - run.counted, run.counted - samples.seen
    if missing and not run.ended_replicas:
        found.append(f"the server did not count {missing.total()} exits that its answers name")
    if surplus and exclusive and not run.errors and not samples.retried:
        found.append(f"the server counted {surplus.total()} exits that no answer names")
    return found


def shortfalls(run: Run) -> list[str]:
    """Return a sentence for each way in which the load fell short; empty if it did not."""
    found, requests = [], len(run.samples.kinds)
    running, wanted = _user_seconds(run)
    if running < _LEAST_USERS * wanted:
        found.append(f"only {running / wanted:.0%} of the users ran")
    if run.rate_per_user:
        due = run.rate_per_user * wanted
        if due and requests < _LEAST_REQUESTS * due:
            found.append(f"{requests} of {due:.0f} requests were made")
        late_ms = np.quantile(run.samples.columns()["late_ms"], 0.95) if requests else 0.0
        if late_ms > _MOST_LATE_MS:
            found.append(f"one request in twenty was sent {late_ms:.0f} ms late or more")
    if run.seconds and run.generator_cpu_s / run.seconds > _MOST_CORES:
        found.append("the load generator was at the limit of its processor")
    return found


def _user_seconds(run: Run) -> tuple[float, float]:
    """Return the users that ran and that should have run, each times seconds."""
    if len(run.users) < 2:
        return 0.0, 0.0
    moments, running = np.array(run.users, dtype=float).T
    # Up to the last request: afterwards users wait for their answers.
    lengths = np.diff(np.minimum(moments, run.seconds), append=run.seconds).clip(min=0)
    return float(running @ lengths), float(np.array(run.wanted_users, dtype=float) @ lengths)


def _longest_gap_s(began_s: Column, latency_s: Column, failed: Any) -> float:
    """Return the longest time without an answer, up to when the last request began."""
    ended = (began_s + latency_s)[~failed]
    moments = np.sort(np.append(ended, [0.0, began_s.max(initial=0.0)]))
    return float(np.diff(moments).max(initial=0.0))


def _exits(run: Run) -> Json:
    seen, depth = run.samples.seen, run.samples.layers
    by_layer, by_reason = dict.fromkeys(range(1, depth + 1), 0), Counter[str]()
    for exit_, count in seen.items():
        by_layer[exit_.layer] = by_layer.get(exit_.layer, 0) + count
        by_reason[exit_.reason] += count
    mean = mean_layer(seen)
    return {
        "answers": seen.total(),
        "counted_by_server": None if run.counted is None else run.counted.total(),
        "by_layer": by_layer,
        "by_reason": dict(by_reason),
        "mean_layer": mean,
        "layers": depth,
        "layers_saved": 1 - mean / depth if depth else math.nan,
        "by_policy_version": dict(sorted(run.samples.versions.items())),
    }


def _quantiles(column: Column) -> dict[str, float]:
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


def _cost(run: Run) -> Json:
    requests, server_s, generator_s = len(run.samples.kinds), run.server_cpu_s, run.generator_cpu_s
    per_1000 = 1e3 / max(requests, 1)
    return {
        "generator_cpu_s": generator_s,
        "server_cpu_s": server_s,
        "server_memory_before_mb": run.server_memory_before_mb,
        "server_memory_mb": run.server_memory_mb,
        "server_cpu_s_per_1000": None if server_s is None else server_s * per_1000,
        "generator_cpu_s_per_1000": generator_s * per_1000,
        "generator_cores": generator_s / run.seconds if run.seconds else math.nan,
    }


def _drift(began_s: Column, latency_ms: Column, failed: Any, seconds: float) -> Json:
    """Return the first and the last third of the run, for a soak test."""
    edges = (0.0, seconds / 3, 2 * seconds / 3, math.inf)
    thirds = [
        latency_ms[~failed & (began_s >= low) & (began_s < high)] for low, high in pairwise(edges)
    ]
    return {
        "first_third_p99_ms": _quantiles(thirds[0])["p99"],
        "last_third_p99_ms": _quantiles(thirds[-1])["p99"],
        "first_third_answers": len(thirds[0]),
        "last_third_answers": len(thirds[-1]),
    }


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
