"""The bench's bars as a table."""

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


def _cells(bar: dict[str, Any]) -> tuple[str, str, str]:
    sign = {"at most": "<=", "at least": ">="}[bar["sense"]]
    verdict = "[green]met[/]" if bar["met"] else "[red]missed[/]"
    unit = bar["unit"]
    return _number(bar["value"], unit), f"{sign} {_number(bar['bound'], unit)}", verdict


def _number(value: float, unit: str) -> str:
    if not unit:
        return f"{value:.3f}"
    return f"{value:,.0f} {unit}" if abs(value) >= 100 else f"{value:.3f} {unit}"
