"""The comparison as a table of Markdown."""

from collections.abc import Sequence
from dataclasses import dataclass

from loadtest.compare.measure import FixedRate, Saturated
from loadtest.http.client import Json
from models.quality.page import table


@dataclass(frozen=True)
class Line:
    """One contender's speed and quality."""

    heavy: Saturated  # under a saturating load
    light: FixedRate  # under the fixed rate
    accuracy: float | None  # share of right labels; None without labels
    agreement: float  # share of labels that equal the full fp32 model's


def table_text(lines: Sequence[Line], facts: Json) -> str:
    """Return the table and the facts that a reader needs."""
    scored = any(line.accuracy is not None for line in lines)
    head = (
        "server",
        "accuracy %" if scored else "agreement %",
        "mean exit",
        "requests/s",
        f"p50 ms at {facts['rate']:.0f}/s",
        "p99 ms",
        "CPU s per 1,000",
        "MB",
    )
    text = table(head, [_cells(line, scored) for line in lines])
    failed = sum(line.light.failed for line in lines)
    late_ms = max(line.light.late_ms for line in lines)
    costs = [line.heavy.load_cpu_s_per_1000 for line in lines]
    shared = ", which the load shares" if facts["load_shares_cores"] else ""
    return (
        f"{text}\n\n{facts['texts']} texts of {facts['data']}; {facts['server_cores']} core(s) "
        f"and as many threads a server{shared}; closed loop of {facts['clients']} clients, then "
        f"an open loop (Poisson). The load cost {min(costs):.2f} to {max(costs):.2f} CPU s per "
        f"1,000 requests, was at most {late_ms:.0f} ms late, and {failed} of its requests failed. "
        f"Load of the machine before: {facts['machine_load']:.1f}. {facts['date']}."
    )


def _cells(line: Line, scored: bool) -> list[object]:
    heavy, light = line.heavy, line.light
    share = line.accuracy if scored else line.agreement
    return [
        heavy.name,
        None if share is None else f"{100 * share:.2f}",
        heavy.mean_layer,
        heavy.per_second,
        light.p50_ms,
        light.p99_ms,
        heavy.cpu_s_per_1000,
        round(heavy.memory_mb),
    ]
