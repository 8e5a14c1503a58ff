"""Explain every failed request of a scenario, and write the table of all scenarios."""

import re
from collections.abc import Iterator, Mapping, Sequence

from loadtest.scenarios.scenario import Scenario
from models.quality.page import table

_MOST_UNEXPLAINED = 5


_LOST = r"no answer(?!.*refused)|50[03] "

# What may fail during an event, and why.
EXPLANATIONS: Mapping[str, tuple[str, str]] = {
    "replica killed": (
        _LOST,
        "the request was in the replica that was killed, and its connection ended; no other "
        "replica gets it, because the server cannot know whether it had effects; classification "
        "has none, so clients may send it again",
    ),
    "replica stopped": (
        _LOST,
        "the request, or its connection, was in the replica that hung, and waited until Ray Serve "
        "had found and killed it; connections went on being dealt to it meanwhile",
    ),
    "proxy killed": (
        r"no answer|50[03] ",
        "there was no proxy, or the proxy died with the request: Ray Serve's controller starts "
        "another; a cluster has a proxy on every node and a load balancer in front",
    ),
    "SIGTERM": (
        r"refused|\[Errno 111\]|503 (?!without JSON)|Connection reset|closed",
        "the server was ending: requests in flight were answered, later ones were refused",
    ),
}


def why(event: str, message: str) -> str | None:
    """Return the explanation of this failure during this event, if there is one."""
    pattern, reason = EXPLANATIONS.get(event, ("(?!)", ""))  # the pattern that nothing matches
    return reason if re.search(pattern, message) else None


def judge(scenario: Scenario) -> list[str]:
    """Return the scenario's problems and the failures without an explanation."""
    unexplained = [m for m in _messages(scenario) if why(scenario.event, m) is None]
    listed = [f"unexplained failure: {message}" for message in unexplained[:_MOST_UNEXPLAINED]]
    return [*scenario.problems, *listed]


def findings_text(scenarios: Sequence[Scenario]) -> str:
    """Return the table, and below it the failures with their explanations."""
    head = ("event", "requests", "failed", "failed twice", "p50 ms", "p99 ms", "longest silence, s",
            "seen")  # fmt: skip
    parts = [table(head, [_cells(scenario) for scenario in scenarios])]
    parts += [part for scenario in scenarios for part in scenario.tables]
    parts += [_failures(s) for s in scenarios if s.report.get("first_tries_failed")]
    problems = [f"* {s.event}: {problem}" for s in scenarios for problem in judge(s)]
    if problems:
        parts.append("## Problems\n\n" + "\n".join(problems))
    return "\n\n".join(parts) + "\n"


def _cells(scenario: Scenario) -> list[object]:
    report, seen = scenario.report, "; ".join(scenario.notes)
    if not report:
        return [scenario.event, *[None] * 6, seen]
    total = report["total"]
    failed = report["first_tries_failed"], total["failures"]
    times = total["p50_ms"], total["p99_ms"], report["longest_gap_s"]
    return [scenario.event, total["requests"], *failed, *times, seen]


def _failures(scenario: Scenario) -> str:
    rows, report = list[list[object]](), scenario.report
    for title, errors in ("first", report["retried"]), ("last", report["errors"]):
        for message, times in sorted(errors.items(), key=lambda item: -item[1]):
            reason = why(scenario.event, message) or "**unexplained**"
            rows.append([times, title, message, reason])
    return f"## Failures: {scenario.event}\n\n" + table(("times", "try", "what", "why"), rows)


def _messages(scenario: Scenario) -> Iterator[str]:
    yield from scenario.report.get("retried", ())
    yield from scenario.report.get("errors", ())
