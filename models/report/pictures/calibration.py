"""Calibration curves: how often exits are right, by how sure they are."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from models.evaluation.reliability import NUM_BINS, Reliability
from models.report.style import RIGHT, STATIC_COLOUR, new_figure

_MOST_PANELS = 6
_COLUMNS = 3


def draw_reliability(found: list[Reliability], lowest: float) -> Figure:
    """Draw a panel for each exit, for at most six of them.

    Args:
        found: of all exits.
        lowest: the lowest confidence that a decision can have.
    """
    shown = [found[i] for i in spread(len(found), _MOST_PANELS)]
    rows = -(-len(shown) // _COLUMNS)
    columns = min(len(shown), _COLUMNS)
    figure = new_figure((3.0 * columns + 0.4, 2.75 * rows + 0.2))
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for axes, exit_ in zip(grid.flat, shown, strict=False):
        _panel(axes, exit_, 100 * lowest)
    for axes in list(grid.flat)[len(shown) :]:
        axes.set_visible(False)
    for axes in grid[-1]:
        axes.set_xlabel("confidence, %")
    for axes in grid[:, 0]:
        axes.set_ylabel("right, %")
    return figure


def spread(count: int, most: int) -> list[int]:
    """Return places out of so many, the first and the last among them, evenly spread."""
    return sorted({round(x) for x in np.linspace(0, count - 1, min(count, most))})


def _panel(axes: Axes, exit_: Reliability, lowest: float) -> None:
    bins = exit_.bins
    filled = bins.counts > 0
    sure, right = 100 * bins.confidence[filled], 100 * bins.right[filled]
    share = bins.counts[filled] / bins.counts.sum()
    start = NUM_BINS * np.floor(lowest / NUM_BINS)
    axes.plot([start, 100], [start, 100], ":", color=STATIC_COLOUR, linewidth=1)
    axes.vlines(sure, np.minimum(sure, right), np.maximum(sure, right), color=RIGHT, alpha=0.35)
    axes.plot(sure, right, "-", color=RIGHT, linewidth=1)
    axes.scatter(sure, right, s=12 + 160 * share, color=RIGHT, alpha=0.85, linewidths=0)
    axes.set_title(f"exit {exit_.layer}: ECE {100 * bins.ece:.1f} %", fontsize=10)
    axes.set_xlim(start, 101.5)
    axes.set_ylim(-2, 103)
