"""The bench's document as tables."""

from itertools import groupby
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table


def bars_table(document: dict[str, Any]) -> Table:
    """Return value, bound and verdict of every bar."""
    model, machine = document["model"], document["machine"]
    title = (
        f"{model['name']}, {model['layers']} layers of width {model['width']}; "
        f"{machine['threads']} threads of {machine['cpu']}"
    )
    table = Table(title=title, box=SIMPLE_HEAD, title_justify="left", caption_justify="left")
    table.caption = f"head: {model['head']}"
    table.add_column("what", overflow="fold")
    for heading in ("value", "bar", "verdict"):
        table.add_column(heading, justify="right", no_wrap=True)
    for what, bars in groupby(document["bars"], key=lambda bar: bar["what"]):
        table.add_row(f"[bold]{what}[/]")
        for bar in bars:
            table.add_row(f"  {bar['case']}", *_cells(bar))
    return table


def heads_table(document: dict[str, Any], precision: str) -> Table:
    """Return what cutting costs where nobody asks the exits before the last, and where all are."""
    shapes = document["figures"][precision]["price_of_cutting"]
    table = Table(title=f"{precision}: segments / one graph", box=SIMPLE_HEAD, title_justify="left")
    table.add_column("rows x tokens", no_wrap=True)
    for heading in ("one graph, ms", "last head alone", "every head"):
        table.add_column(heading, justify="right", no_wrap=True)
    for shape in shapes:
        ratios = (shape["ratio"], shape["asked_ratio_to_one_graph_with_every_head"])
        size = f"{shape['rows']} x {shape['tokens']}"
        table.add_row(size, f"{shape['one_graph_ms']:.2f}", *(f"{ratio:.3f}" for ratio in ratios))
    return table


def _cells(bar: dict[str, Any]) -> tuple[str, str, str]:
    sign = {"at most": "<=", "at least": ">="}[bar["sense"]]
    verdict = "[green]met[/]" if bar["met"] else "[red]missed[/]"
    unit = bar["unit"]
    return _number(bar["value"], unit), f"{sign} {_number(bar['bound'], unit)}", verdict


def _number(value: float, unit: str) -> str:
    if not unit:
        return f"{value:.3f}"
    return f"{value:,.0f} {unit}" if abs(value) >= 100 else f"{value:.3f} {unit}"
