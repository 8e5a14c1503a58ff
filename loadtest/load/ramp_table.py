"""A ramp's steps as a Markdown table."""

from loadtest.load.figures import RampResult
from models.report.markdown import percent, table

_HEAD = ("users", "offered/s", "answered/s", "p50 ms", "p99 ms", "failed", "")


def ramp_table(ramp: RampResult) -> str:
    """Return the steps with the knee marked, and why the ramp ended."""
    rows = [
        [
            *(step.users, step.offered, step.per_second, step.p50_ms, step.p99_ms),
            percent(step.failed),
            "knee" if step == ramp.knee else "",
        ]
        for step in ramp.steps
    ]
    ended = f"The ramp ended because {ramp.reason}." if ramp.reason else "The ramp was cut short."
    return f"{table(_HEAD, rows)}\n\n{ended}"
