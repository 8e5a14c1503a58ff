"""The load test's report: a folder with a page, a JSON document and Locust's charts."""

import json
import math
from collections import Counter
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from loadtest.http.client import Json
from loadtest.http.metrics_page import MetricsPage, Spread, mean_layer
from loadtest.load.figures import Figures, RampResult, ramp_table, shortfalls
from loadtest.load.samples import SERVER_TIMES, Samples
from models.quality.page import percent, shown, table

_STAGES = ("tokenize", "queue", "segment", "judge")
_MOST_ERRORS = 20


def write_report(figures: Figures, facts: Json, folder: Path) -> tuple[Path, str]:
    """Write report.md, report.json and charts.html; return report.md's path and a summary.

    Args:
        figures: the run.
        facts: what was run: command, date, server, machine.
        folder: made if it does not exist.
    """
    folder.mkdir(parents=True, exist_ok=True)
    found = {"run": facts, **document(figures)}
    (folder / "report.json").write_text(json.dumps(found, indent=1) + "\n")
    (folder / "charts.html").write_text(figures.charts)
    path = folder / "report.md"
    path.write_text(page(found, figures.ramp))
    return path, summary(found, figures.ramp)


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


def page(found: Json, ramp: RampResult | None) -> str:
    """Return report.md.

    Args:
        found: the JSON document, with `run`.
        ramp: of a ramp.
    """
    return _sections(
        f"# Load test of {found['run'].get('date', '')}".strip(),
        "\n".join(f"* {name}: {value}" for name, value in found["run"].items()),
        summary(found, ramp),
        "## Where the time went\n\n" + _times_table(found),
        "## What it cost\n\n" + _cost_table(found["cost"]),
        "## First and last third of the run\n\n" + _drift_table(found["drift"]),
        "Throughput, latency and users over time: [charts.html](charts.html).",
    )


def summary(found: Json, ramp: RampResult | None) -> str:
    """Return the part of the page that is also printed: requests, failures, ramp and exits."""
    return _sections(
        "## Requests\n\nTimes are those of answered requests, from when they were due (open loop) "
        "or sent (closed loop).\n\n" + _kinds_table(found),
        _errors(found),
        "## The ramp\n\n" + ramp_table(ramp) if ramp else "",
        "## Where texts left\n\n" + _exits_table(found),
    ).rstrip()


def _sections(*sections: str) -> str:
    return "\n\n".join(section for section in sections if section) + "\n"


def _kinds_table(found: Json) -> str:
    rows = [list(kind.values()) for kind in (*found["kinds"], found["total"])]
    head = ("kind", "requests", "failed", "p50 ms", "p95 ms", "p99 ms", "answered/s")
    return table(head, rows)


def _errors(found: Json) -> str:
    parts = []
    if found["fell_short"]:
        parts.append(
            f"**The load fell short: {'; '.join(found['fell_short'])}. The server may do worse "
            "under the load that was asked for, and better than the throughput above.**"
        )
    if found["not_sent"]:
        parts.append(
            f"{found['not_sent']} requests were due while too many others waited "
            "(`--most-outstanding`) and were not sent: the true times are longer than those above."
        )
    for title, errors in (("Failures", found["errors"]), ("Sent again", found["retried"])):
        if errors:
            listed = sorted(errors.items(), key=lambda item: -item[1])[:_MOST_ERRORS]
            parts.append(f"## {title}\n\n" + table(("times", "what"), [[n, m] for m, n in listed]))
    return "\n\n".join(parts)


def _exits_table(found: Json) -> str:
    exits = found["exits"]
    answers = max(exits["answers"], 1)
    rows = [[layer, n, f"{n / answers:.1%}"] for layer, n in exits["by_layer"].items()]
    facts = [
        f"mean exit layer {shown(exits['mean_layer'])} of {exits['layers']}",
        f"layers saved {percent(exits['layers_saved'])} "
        f"(the server says {percent(found['server']['layers_saved'])})",
        f"{exits['answers']} answers, {shown(exits['counted_by_server'])} counted by the server",
    ]
    if found["accuracy"] is not None:
        facts.append(f"accuracy {percent(found['accuracy'], 2)}")
    if ended := found["ended_replicas"]:
        facts.append(
            f"{len(ended)} replicas ended during the run, and what they counted last is missing"
        )
    versions = exits["by_policy_version"]
    if len(versions) > 1:
        facts.append(f"policy versions {min(versions)} to {max(versions)}")
    return table(("layer", "answers", "share"), rows) + f"\n\n{'; '.join(facts)}."


def _times_table(found: Json) -> str:
    client, server = found["client"], found["server"]
    rows = [
        ["client: due to answered", *_three(client["due_to_answer"])],
        ["client: due to sent (the load generator's own delay)", *_three(client["due_to_sent"])],
        ["server, in its answers: total", *_three(client["server_total"])],
        ["server, in its answers: queue", *_three(client["server_queue"])],
        ["server, in its answers: compute", *_three(client["server_compute"])],
        ["server, /metrics: HTTP request", *_three(server["http"])],
        *([f"server, /metrics: {s}", *_three(t)] for s, t in server["stages"].items()),
    ]
    batches = (
        f"{shown(server['rows_per_batch'])} rows a batch, padding {percent(server['padding'])}"
    )
    codes = ", ".join(f"{int(n)} x {code}" for code, n in server["requests_by_code"].items() if n)
    return table(("ms", "mean", "p50", "p99"), rows) + (
        f"\n\nQuantiles of /metrics are estimated within buckets. {batches}; "
        f"HTTP statuses: {codes or 'unknown'}."
    )


def _three(times: Json) -> list[Any]:
    return [times["mean"], times["p50"], times["p99"]]


def _cost_table(cost: Json) -> str:
    memory = (cost["server_memory_before_mb"], cost["server_memory_mb"])
    rows = [
        ["server", cost["server_cpu_s"], cost["server_cpu_s_per_1000"], *memory],
        ["load generator", cost["generator_cpu_s"], cost["generator_cpu_s_per_1000"], None, None],
    ]
    head = ("processes of the", "CPU s", "per 1,000 requests", "MB before", "MB after (PSS)")
    note = f"\n\nThe load generator took {shown(cost['generator_cores'])} of a core."
    return table(head, rows) + note


def _drift_table(drift: Json) -> str:
    rows = [
        ["first", drift["first_third_answers"], drift["first_third_p99_ms"]],
        ["last", drift["last_third_answers"], drift["last_third_p99_ms"]],
    ]
    return table(("third", "answers", "p99 ms"), rows)
