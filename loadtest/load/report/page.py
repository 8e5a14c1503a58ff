"""A run's figures as a page of Markdown."""

from typing import Any

from loadtest.http.client import Json
from loadtest.load.figures import RampResult, ramp_table
from models.report.markdown import percent, shown, table

_MOST_ERRORS = 20


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
        "## Where the time went\n\n" + _times(found),
        "## What it cost\n\n" + _cost(found["cost"]),
        "## First and last third of the run\n\n" + _drift(found["drift"]),
        "Throughput, latency and users over time: [charts.html](charts.html).",
    )


def summary(found: Json, ramp: RampResult | None) -> str:
    """Return the part of the page that is also printed: requests, failures, ramp and exits."""
    return _sections(
        "## Requests\n\nTimes are those of answered requests, from when they were due (open loop) "
        "or sent (closed loop).\n\n" + _kinds(found),
        _errors(found),
        "## The ramp\n\n" + ramp_table(ramp) if ramp else "",
        "## Where texts left\n\n" + _exits(found),
    ).rstrip()


def _sections(*sections: str) -> str:
    return "\n\n".join(section for section in sections if section) + "\n"


def _kinds(found: Json) -> str:
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


def _exits(found: Json) -> str:
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


def _times(found: Json) -> str:
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


def _cost(cost: Json) -> str:
    memory = (cost["server_memory_before_mb"], cost["server_memory_mb"])
    rows = [
        ["server", cost["server_cpu_s"], cost["server_cpu_s_per_1000"], *memory],
        ["load generator", cost["generator_cpu_s"], cost["generator_cpu_s_per_1000"], None, None],
    ]
    head = ("processes of the", "CPU s", "per 1,000 requests", "MB before", "MB after (PSS)")
    note = f"\n\nThe load generator took {shown(cost['generator_cores'])} of a core."
    return table(head, rows) + note


def _drift(drift: Json) -> str:
    rows = [
        ["first", drift["first_third_answers"], drift["first_third_p99_ms"]],
        ["last", drift["last_third_answers"], drift["last_third_p99_ms"]],
    ]
    return table(("third", "answers", "p99 ms"), rows)
