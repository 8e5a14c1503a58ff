"""A ramp's steps in words and as a table of plain text (which is Markdown too)."""

from collections.abc import Sequence

from loadtest.load.saturation import Step


def steps_text(steps: Sequence[Step], knee: Step | None, reason: str | None) -> str:
    """Return the steps as a table, with why the ramp ended and where its knee is."""
    lines = [
        "| users | offered/s | answered/s | p50 ms | p99 ms | failed | |",
        "|---:|---:|---:|---:|---:|---:|---|",
    ]
    for step in steps:
        offered = "-" if step.offered is None else f"{step.offered:.0f}"
        cells = (
            str(step.users),
            offered,
            f"{step.per_second:.1f}",
            f"{step.p50_ms:.0f}",
            f"{step.p99_ms:.0f}",
            f"{step.failed:.1%}",
            "knee" if step == knee else "",
        )
        lines.append(f"| {' | '.join(cells)} |")
    ended = f"\nThe ramp ended because {reason}." if reason else "\nThe ramp was cut short."
    return "\n".join([*lines, ended])
