"""Example texts as a table: what every exit answers, and how sure it is."""

import math
import textwrap
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from models.report.parts.example_rows import Cell, ExampleRow
from models.report.style import RIGHT, STATIC_COLOUR, WRONG, new_figure, spread

_MOST_EXITS = 8
_TEXT_WIDTH, _GOLD_WIDTH, _CELL_WIDTH = 4.0, 1.0, 1.0  # inches
_TEXT_CHARACTERS, _CELL_CHARACTERS, _MOST_LINES = 62, 13, 4
_LINE_HEIGHT = 0.17
_UNKNOWN = "#7f7f7f"


def draw_examples(rows: Sequence[ExampleRow], exits: tuple[int, ...], most: float) -> Figure:
    """Draw the table; blue is right and orange wrong, and the surer an exit the deeper the colour.

    Args:
        rows: texts, grouped by why they were chosen.
        exits: layers.
        most: the largest entropy that there can be, in nats.
    """
    columns = spread(len(exits), _MOST_EXITS)
    width = _TEXT_WIDTH + _GOLD_WIDTH + _CELL_WIDTH * len(columns)
    heights = [_height(row, columns) for row in rows]
    figure = new_figure((width + 0.2, sum(heights) + 0.55))
    axes = figure.add_subplot()
    axes.axis("off")
    axes.set_xlim(0, width)
    axes.set_ylim(sum(heights) + 0.35, 0)
    _header(axes, [exits[i] for i in columns])
    top, before = 0.35, ""
    for row, height in zip(rows, heights, strict=True):
        _row(axes, row, [row.cells[i] for i in columns], (top, height), most, row.why != before)
        top, before = top + height, row.why
    return figure


def _header(axes: Axes, layers: Sequence[int]) -> None:
    style: dict[str, Any] = {"va": "center", "fontsize": 9, "fontweight": "bold"}
    axes.text(0.05, 0.18, "text", ha="left", **style)
    axes.text(_TEXT_WIDTH + _GOLD_WIDTH / 2, 0.18, "correct", ha="center", **style)
    for place, layer in enumerate(layers):
        axes.text(_left(place) + _CELL_WIDTH / 2, 0.18, f"layer {layer}", ha="center", **style)


def _row(
    axes: Axes,
    row: ExampleRow,
    cells: Sequence[Cell],
    place: tuple[float, float],
    most: float,
    first: bool,
) -> None:
    top, height = place
    middle = top + height / 2
    axes.axhline(top, color="black" if first else "#cccccc", linewidth=0.8 if first else 0.5)
    axes.text(
        0.05, top + 0.05, row.why, ha="left", va="top", fontsize=7, color=STATIC_COLOUR,
        fontstyle="italic",
    )  # fmt: skip
    text = "\n".join(_wrapped(row.text, _TEXT_CHARACTERS))
    axes.text(0.05, middle + 0.07, text, ha="left", va="center", fontsize=8.5)
    gold = "\n".join(_wrapped(row.gold or "not given", _CELL_CHARACTERS))
    axes.text(_TEXT_WIDTH + _GOLD_WIDTH / 2, middle, gold, ha="center", va="center", fontsize=8)
    for index, cell in enumerate(cells):
        _cell(axes, cell, (_left(index), top, height), most)


def _cell(axes: Axes, cell: Cell, place: tuple[float, float, float], most: float) -> None:
    left, top, height = place
    colour, depth = _colour(cell, most)
    axes.add_patch(
        Rectangle(
            (left + 0.03, top + 0.03),
            _CELL_WIDTH - 0.06,
            height - 0.06,
            facecolor=colour,
            alpha=0.10 + 0.55 * depth,
            linewidth=0,
        )
    )
    lines = _wrapped(cell.answer, _CELL_CHARACTERS)
    if cell.entropy is not None and not math.isnan(cell.entropy):
        lines.append(f"{cell.entropy:.3f}")
    axes.text(
        left + _CELL_WIDTH / 2, top + height / 2, "\n".join(lines), ha="center", va="center",
        fontsize=8,
    )  # fmt: skip


def _colour(cell: Cell, most: float) -> tuple[str, float]:
    """Return a cell's colour, and how deep it is, from 0 to 1."""
    if cell.error is not None:
        return WRONG, min(cell.error, 1)
    depth = 0.5 if cell.entropy is None else 1 - min(cell.entropy / most, 1)
    return _UNKNOWN if cell.right is None else RIGHT if cell.right else WRONG, depth


def _left(place: int) -> float:
    return _TEXT_WIDTH + _GOLD_WIDTH + _CELL_WIDTH * place


def _height(row: ExampleRow, columns: Sequence[int]) -> float:
    answers = [len(_wrapped(row.cells[i].answer, _CELL_CHARACTERS)) + 1 for i in columns]
    gold = len(_wrapped(row.gold or "", _CELL_CHARACTERS))
    lines = max(len(_wrapped(row.text, _TEXT_CHARACTERS)) + 1, gold, *answers)
    return _LINE_HEIGHT * lines + 0.14


def _wrapped(text: str, width: int) -> list[str]:
    """Return a text's first lines."""
    # A dollar sign would begin a formula.
    plain = text.replace("$", r"\$")
    # Labels such as `not_equivalent` break where their words do.
    parted = plain.replace("_", "_\u200b ")
    lines = textwrap.wrap(parted, width, max_lines=_MOST_LINES, placeholder=" ...")
    return [line.replace("\u200b ", "").replace("\u200b", "") for line in lines]
