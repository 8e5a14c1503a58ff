"""The simulator's figures as tables."""

from collections.abc import Mapping
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from loadtest.simulator.grid import LEAST_RATIO, Part, overall
from loadtest.simulator.scenario import CONTENDERS

# The box keeps columns apart, so that the table fits eighty characters.
_STYLE: dict[str, Any] = {
    "box": SIMPLE_HEAD,
    "title_justify": "left",
    "caption_justify": "left",
    "padding": 0,
}


def part_table(part: Part, reference: str) -> Table:
    """Return a table with a line per load and contender."""
    table = Table(
        title=f"{part.arrivals} arrivals, exits {part.mix} (mean {part.mean_exit:.2f}), "
        f"bound {part.bound_ms:.2f} ms",
        caption=f"load 1.00: {part.capacity[reference]:,.0f} requests/s, {reference} saturated",
        **_STYLE,
    )
    table.add_column("load", no_wrap=True)
    table.add_column("contender", no_wrap=True)
    figures = ("answers\n/s", "busy", "p50\nms", "p99\nms", "lone\np99", "within\nbound")
    for heading in (*figures, "rows\nmean", "rows\n10-90%", "ratio"):
        table.add_column(heading, justify="right", no_wrap=True)
    for point in part.points:
        for place, found in enumerate(point.figures):
            table.add_row(
                "" if place else f"{point.load:.2f}",
                found.contender,
                f"{found.answered_per_s:,.0f}",
                f"{found.utilisation:.2f}",
                f"{found.p50_ms:.1f}",
                f"{found.p99_ms:.1f}",
                f"{found.lone_p99_ms:.1f}",
                f"{found.within_bound:.3f}",
                f"{found.batch_rows:.1f}",
                f"{found.batch_rows_p10:.0f}-{found.batch_rows_p90:.0f}",
                "" if place else _rated(point.ratio),
                end_section=place == len(point.figures) - 1,
            )
    return table


def summary_table(parts: list[Part]) -> Table:
    """Return a table with the capacity and the rate within the bound per kind of traffic."""
    table = Table(
        title="capacity (saturated) and highest rate whose p99 keeps the bound, requests/s",
        caption="x: engine over run to completion, and over the whole model. worst,\n"
        "overall: the smallest ratio to run to completion, and that of the sums, over\n"
        "the loads, of requests answered within the bound at equal arrivals",
        **_STYLE,
    )
    table.add_column("arrivals")
    table.add_column("exits", no_wrap=True)
    table.add_column("", no_wrap=True)
    for name in (*CONTENDERS, "x", "x\nwhole", "worst", "overall"):
        table.add_column(name.replace(" ", "\n", 1), justify="right", no_wrap=True)
    for part in parts:
        found = _rated(part.worst), _rated(overall([part]))
        table.add_row(part.arrivals, part.mix, "capacity", *_rates(part.capacity), *found)
        if part.sustainable is not None:
            table.add_row("", "", "in bound", *_rates(part.sustainable))
    if overall(parts) is not None:
        worst = min(part.worst for part in parts if part.worst is not None)
        empty = [""] * (len(CONTENDERS) + 4)
        table.add_row("all", *empty, _rated(worst), _rated(overall(parts)))
    return table


def _rates(rates: Mapping[str, float]) -> list[str]:
    """Return each contender's rate, and the engine's over those of the others."""
    ours, *theirs = (rates[name] for name in CONTENDERS)
    ratios = [f"{ours / other:.2f}" if other else "-" for other in theirs]
    return [*(f"{rates[name]:,.0f}" for name in CONTENDERS), *ratios]


def _rated(ratio: float | None) -> str:
    if ratio is None:
        return ""
    return f"{ratio:.3f}" if ratio >= LEAST_RATIO else f"[red]{ratio:.3f}[/red]"
