"""Every failed request of a scenario, explained, and the table of all scenarios."""

from collections.abc import Iterator, Sequence

from loadtest.chaos.explanations import why
from loadtest.chaos.scenario import Scene
from loadtest.load.report.page import table

_MOST_UNEXPLAINED = 5


def judge(scene: Scene) -> list[str]:
    """Return what is wrong: what the scenario noted, and failures that nothing explains."""
    unexplained = [m for m in _messages(scene) if why(scene.event, m) is None]
    listed = [f"unexplained failure: {message}" for message in unexplained[:_MOST_UNEXPLAINED]]
    return [*scene.problems, *listed]


def findings_text(scenes: Sequence[Scene]) -> str:
    """Return the table, and below it the reasons."""
    head = (
        "what happens",
        "requests",
        "failed",
        "failed, asked twice",
        "p50 ms",
        "p99 ms",
        "longest silence, s",
        "seen",
    )
    parts = [table(head, [_cells(scene) for scene in scenes])]
    parts += [_section(scene) for scene in scenes if scene.report.get("first_tries_failed")]
    wrong = [f"* {scene.event}: {problem}" for scene in scenes for problem in judge(scene)]
    if wrong:
        parts.append("## What is wrong\n\n" + "\n".join(wrong))
    return "\n\n".join(parts) + "\n"


def _cells(scene: Scene) -> list[object]:
    report = scene.report
    if not report:
        return [scene.event, *[None] * 6, "not finished"]
    total = report["total"]
    return [
        scene.event,
        total["requests"],
        report["first_tries_failed"],
        total["failures"],
        total["p50_ms"],
        total["p99_ms"],
        report["longest_gap_s"],
        "; ".join(scene.notes),
    ]


def _section(scene: Scene) -> str:
    rows = []
    for title, errors in (("first", scene.report["retried"]), ("last", scene.report["errors"])):
        for message, times in sorted(errors.items(), key=lambda item: -item[1]):
            reason = why(scene.event, message) or "**unexplained**"
            rows.append([times, title, message, reason])
    return f"## Failures: {scene.event}\n\n" + table(("times", "try", "what", "why"), rows)


def _messages(scene: Scene) -> Iterator[str]:
    yield from scene.report.get("retried", ())
    yield from scene.report.get("errors", ())
