"""The simulator's figures as a table."""

from collections.abc import Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table

from loadtest.simulator.part import Part
from loadtest.simulator.scenario import CONTENDERS


def summary_table(parts: Sequence[Part]) -> Table:
    """Return a table with the capacity and the rate within the bound per kind of traffic."""
    table = Table(
        title="capacity (saturated) and highest rate whose p99 keeps the bound, requests/s",
        caption="x: engine over run to completion, and over the whole model",
        # The box keeps columns apart, so that the table fits eighty characters.
        box=SIMPLE_HEAD,
        title_justify="left",
        caption_justify="left",
        padding=0,
    )
    for name in ("arrivals", "exits", "bound\nms", ""):
        table.add_column(name, no_wrap=True)
    for name in (*CONTENDERS, "x", "x\nwhole"):
        table.add_column(name.replace(" ", "\n", 1), justify="right", no_wrap=True)
    for part in parts:
        traffic = part.arrivals, part.mix, f"{part.bound_ms:.1f}"
        table.add_row(*traffic, "capacity", *_rates(part.capacity))
        table.add_row("", "", "", "in bound", *_rates(part.sustainable))
    return table


def _rates(rates: Mapping[str, float]) -> list[str]:
    """Return each contender's rate, and the engine's over those of the others."""
    ours, *theirs = (rates[name] for name in CONTENDERS)
    ratios = [f"{ours / other:.2f}" if other else "-" for other in theirs]
    return [*(f"{rates[name]:,.0f}" for name in CONTENDERS), *ratios]
