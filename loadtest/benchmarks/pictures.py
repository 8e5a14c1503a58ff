"""The page's two pictures."""

from collections.abc import Callable, Sequence
from math import log10
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from loadtest.benchmarks.cells import Cells
from loadtest.benchmarks.figures import BOUNDS, CPU, SAME, is_own, measured, span

COSTS = "images/benchmarks/cost-and-quality.svg"
IN_TIME = "images/benchmarks/answers-in-time.svg"
_LINE, _HEIGHT = 10, 290  # points of a line of text and of the axes


def draw(folder: Path, cells: Cells, suite: str) -> None:
    """Draw the pictures of a suite, the second if its loads were measured."""
    names = measured(cells)[suite]
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "0", "font.size": 9}):
        _save(folder / COSTS, _costs, cells, suite, names)
        if has_open_loops(cells, suite):
            _save(folder / IN_TIME, _in_time, cells, suite, names)


def has_open_loops(cells: Cells, suite: str) -> bool:
    """Whether answers within a bound on p99 were measured."""
    return any(key.suite == suite and key.load == BOUNDS[0].load for key in cells.by_key)


Plot = Callable[[Axes, Cells, str, Sequence[str]], None]


def _save(path: Path, plot: Plot, cells: Cells, suite: str, names: Sequence[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    plot(axes, cells, suite, names)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})


def _costs(axes: Axes, cells: Cells, suite: str, names: Sequence[str]) -> None:
    found = [(span(cells, suite, n, CPU), span(cells, suite, n, SAME), n) for n in names]
    points = sorted((cost.mean, 100 - same.mean, n) for cost, same, n in found if cost and same)
    low, high = 0.7 * points[0][0], 1.7 * points[-1][0]
    line = log10(high / low) * _LINE / _HEIGHT  # of text, in decades
    place = 0.0
    for cost, other, name in points:
        # Labels that would overlap move up.
        place = max(log10(cost / low), place + line)
        shift = (place - log10(cost / low)) * _LINE / line
        axes.plot(other, cost, "o", color=_color(name))
        thin = {"arrowstyle": "-", "linewidth": 0.4, "color": "gray"}
        how: dict[str, Any] = {"textcoords": "offset points", "va": "center", "arrowprops": thin}
        axes.annotate(name, (other, cost), (20, shift), **how)
    axes.set(xscale="symlog", xlim=(-0.1, 100), yscale="log", ylim=(low, high))
    axes.set(xlabel="% of answers other than the whole model's", ylabel=CPU.title)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")


def _in_time(axes: Axes, cells: Cells, suite: str, names: Sequence[str]) -> None:
    for column, mark in zip(BOUNDS, "os", strict=True):
        axes.plot([], [], mark, color="gray", label=column.title)
        for place, name in enumerate(names):
            found = span(cells, suite, name, column)
            if found and found.mean:
                axes.plot(found.mean, place, mark, color=_color(name))
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set(xscale="log", xlabel="texts/s, Poisson arrivals; not shown: bound not kept")
    axes.grid(axis="y", linewidth=0.3)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.legend(loc="center right")


def _color(name: str) -> str:
    return "tab:orange" if is_own(name) else "tab:blue"
