"""Explain every failed request of a scenario, and write the table of all scenarios."""

from collections.abc import Iterator, Sequence

from loadtest.chaos.explanations import why
from loadtest.chaos.scenario import Scenario
from models.report.markdown import table

_MOST_UNEXPLAINED = 5


def judge(scenario: Scenario) -> list[str]:
    """Return the scenario's problems and the failures without an explanation."""
    unexplained = [m for m in _messages(scenario) if why(scenario.event, m) is None]
    listed = [f"unexplained failure: {message}" for message in unexplained[:_MOST_UNEXPLAINED]]
    return [*scenario.problems, *listed]


def findings_text(scenarios: Sequence[Scenario]) -> str:
    """Return the table, and below it the failures with their explanations."""
    head = (
        "event",
        "requests",
        "failed",
        "failed twice",
        "p50 ms",
        "p99 ms",
        "longest silence, s",
        "seen",
    )
    parts = [table(head, [_cells(scenario) for scenario in scenarios])]
    parts += [_failures(s) for s in scenarios if s.report.get("first_tries_failed")]
    problems = [f"* {s.event}: {problem}" for s in scenarios for problem in judge(s)]
    if problems:
        parts.append("## Problems\n\n" + "\n".join(problems))
    return "\n\n".join(parts) + "\n"


def _cells(scenario: Scenario) -> list[object]:
    report = scenario.report
    if not report:
        return [scenario.event, *[None] * 6, "not finished"]
    total = report["total"]
    return [
        scenario.event,
        total["requests"],
        report["first_tries_failed"],
        total["failures"],
        total["p50_ms"],
        total["p99_ms"],
        report["longest_gap_s"],
        "; ".join(scenario.notes),
    ]


def _failures(scenario: Scenario) -> str:
    rows = []
    for title, errors in (
        ("first", scenario.report["retried"]),
        ("last", scenario.report["errors"]),
    ):
        for message, times in sorted(errors.items(), key=lambda item: -item[1]):
            reason = why(scenario.event, message) or "**unexplained**"
            rows.append([times, title, message, reason])
    return f"## Failures: {scenario.event}\n\n" + table(("times", "try", "what", "why"), rows)


def _messages(scenario: Scenario) -> Iterator[str]:
    yield from scenario.report.get("retried", ())
    yield from scenario.report.get("errors", ())
