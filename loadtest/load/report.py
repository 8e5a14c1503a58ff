"""The load test's report: a folder with a page, a JSON document and Locust's charts."""

import json
from pathlib import Path
from typing import Any

from loadtest.http.client import Json
from loadtest.load.figures import Run, document
from models.quality.page import percent, shown, table

_MOST_ERRORS = 20


def write_report(run: Run, facts: Json, folder: Path) -> tuple[Path, str]:
    """Write report.md, report.json and charts.html; return report.md's path and a summary.

    Args:
        run: what was done.
        facts: how it was done: command, date, server, machine.
        folder: made if it does not exist.
    """
    folder.mkdir(parents=True, exist_ok=True)
    found = {"run": facts, **document(run)}
    (folder / "report.json").write_text(json.dumps(found, indent=1) + "\n")
    (folder / "charts.html").write_text(run.charts)
    path = folder / "report.md"
    path.write_text(_page(found))
    return path, summary(found)


def summary(found: Json) -> str:
    """Return the part of the page that is also printed: requests, failures, ramp and exits."""
    head = ("kind", "requests", "failed", "p50 ms", "p95 ms", "p99 ms", "answered/s")
    kinds = [list(kind.values()) for kind in (*found["kinds"], found["total"])]
    return _sections(
        "## Requests\n\nTimes are those of answered requests, from when they were due (open loop) "
        "or sent (closed loop).",
        table(head, kinds),
        *_errors(found),
        "## The ramp\n\n" + ramp_text(found["ramp"]) if found["ramp"] else "",
        "## Where texts left\n\n" + _exits(found),
    ).rstrip()


def ramp_text(ramp: Json) -> str:
    """Return the steps with the knee marked, and why the ramp ended."""
    head = ("users", "offered/s", "answered/s", "p50 ms", "p99 ms", "failed", "")
    rows = [
        [*list(step.values())[:-1], percent(step["failed"]), "knee" * (step == ramp["knee"])]
        for step in ramp["steps"]
    ]
    reason = ramp["reason"]
    ended = f"The ramp ended because {reason}." if reason else "The ramp was cut short."
    return f"{table(head, rows)}\n\n{ended}"


def _page(found: Json) -> str:
    drift = found["drift"]
    thirds = [
        [each, drift[f"{each}_third_answers"], drift[f"{each}_third_p99_ms"]]
        for each in ("first", "last")
    ]
    return _sections(
        f"# Load test of {found['run'].get('date', '')}".strip(),
        "\n".join(f"* {name}: {value}" for name, value in found["run"].items()),
        summary(found),
        "## Where the time went\n\n" + _times(found),
        "## What it cost\n\n" + _cost(found["cost"]),
        "## First and last third of the run\n\n" + table(("third", "answers", "p99 ms"), thirds),
        "Throughput, latency and users over time: [charts.html](charts.html).",
    )


def _sections(*sections: str) -> str:
    return "\n\n".join(section for section in sections if section) + "\n"


def _errors(found: Json) -> list[str]:
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
    return parts


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
    lines: dict[str, Any] = {
        "client: due to answered": client["due_to_answer"],
        "client: due to sent (the load generator's own delay)": client["due_to_sent"],
        **{f"server, in its answers: {name}": client[f"server_{name}"]
           for name in ("total", "queue", "compute")},
        "server, /metrics: HTTP request": server["http"],
        **{f"server, /metrics: {stage}": times for stage, times in server["stages"].items()},
    }  # fmt: skip
    rows = [[name, times["mean"], times["p50"], times["p99"]] for name, times in lines.items()]
    codes = ", ".join(f"{int(n)} x {code}" for code, n in server["requests_by_code"].items() if n)
    return table(("ms", "mean", "p50", "p99"), rows) + (
        "\n\nQuantiles of /metrics are estimated within buckets. "
        f"{shown(server['rows_per_batch'])} rows a batch, padding {percent(server['padding'])}; "
        f"HTTP statuses: {codes or 'unknown'}."
    )


def _cost(cost: Json) -> str:
    memory = (cost["server_memory_before_mb"], cost["server_memory_mb"])
    rows = [
        ["server", cost["server_cpu_s"], cost["server_cpu_s_per_1000"], *memory],
        ["load generator", cost["generator_cpu_s"], cost["generator_cpu_s_per_1000"], None, None],
    ]
    head = ("processes of the", "CPU s", "per 1,000 requests", "MB before", "MB after (PSS)")
    note = f"\n\nThe load generator took {shown(cost['generator_cores'])} of a core."
    return table(head, rows) + note
