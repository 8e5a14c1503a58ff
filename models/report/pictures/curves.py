"""Quality against cost: rules as curves, beside stopping every text at the same layer."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from models.evaluation.analysis import Analysis
from models.evaluation.costs import GFLOPS, LAYERS, MS
from models.evaluation.operating_points import LADDER, PROFILES, STATIC, Point
from models.evaluation.tables import title, unit
from models.report.style import COLOURS, STATIC_COLOUR, legend_below, new_figure

_AXES = {
    LAYERS: "mean layers per text",
    MS: "mean milliseconds per lone text",
    GFLOPS: "mean GFLOPs per text",
}
_WIDE, _HIGH, _LEGEND = 4.6, 4.0, 0.7


class _Pen(NamedTuple):
    """How a line looks, and what the legend calls it."""

    label: str
    colour: str
    style: str


def draw_families(analysis: Analysis) -> Figure:
    """Draw all families of one model's rules against each cost that is known."""
    figure, panels = _panels([analysis])
    for cost, axes in panels.items():
        static = analysis.points[STATIC]
        pen = _Pen("every text stops at layer k", STATIC_COLOUR, "s--")
        _line(axes, analysis, static, cost, pen)
        for colour, (name, points) in zip(COLOURS, analysis.families.items(), strict=False):
            if name == analysis.headline:
                _band(axes, analysis, points, cost, colour)
            _line(axes, analysis, points, cost, _Pen(name, colour, "o-"))
        _marks(axes, analysis, cost)
        _number_layers(axes, analysis, cost)
    return _finish(figure, panels, [analysis])


def draw_models(analyses: Sequence[Analysis], names: Sequence[str]) -> Figure:
    """Draw the first family of each model, beside its static curve."""
    figure, panels = _panels(analyses)
    for place, (analysis, name) in enumerate(zip(analyses, names, strict=True)):
        colour = COLOURS[place % len(COLOURS)]
        for cost, axes in panels.items():
            if cost not in analysis.observed.costs:
                continue
            static = analysis.points[STATIC]
            pen = _Pen(f"{name}, stop at layer k", colour, "s:")
            _line(axes, analysis, static, cost, pen)
            if analysis.headline:
                label = f"{name}, {analysis.headline}"
                points = analysis.families[analysis.headline]
                _line(axes, analysis, points, cost, _Pen(label, colour, "o-"))
    return _finish(figure, panels, analyses)


def _panels(analyses: Sequence[Analysis]) -> tuple[Figure, dict[str, Axes]]:
    """Return one panel for each cost that some model has."""
    known = [cost for cost in _AXES if any(cost in a.observed.costs for a in analyses)]
    figure = new_figure((max(_WIDE * len(known), 6.5), _HIGH + _LEGEND))
    axes = figure.subplots(1, len(known), sharey=True, squeeze=False)[0]
    return figure, dict(zip(known, axes, strict=True))


def _finish(figure: Figure, panels: dict[str, Axes], analyses: Sequence[Analysis]) -> Figure:
    for cost, axes in panels.items():
        axes.set_xlabel(_AXES[cost])
        axes.set_xlim(left=0)
        if cost == LAYERS:
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    first = next(iter(panels.values()))
    metrics = dict.fromkeys(a.observed.metric.name for a in analyses)
    first.set_ylabel(" or ".join(f"{title(m)}, {unit(m)}" for m in metrics))
    widest = max(panels.values(), key=lambda axes: len(axes.get_legend_handles_labels()[0]))
    legend_below(figure, widest, columns=3 if len(panels) > 1 else 2)
    return figure


def _line(axes: Axes, analysis: Analysis, points: list[Point], cost: str, pen: _Pen) -> None:
    x, y = _places(analysis, points, cost)
    axes.plot(x, y, pen.style, color=pen.colour, label=pen.label, markersize=3.2, linewidth=1.4)


def _band(axes: Axes, analysis: Analysis, points: list[Point], cost: str, colour: str) -> None:
    """Shade the bootstrap interval of a curve's points."""
    x = np.array([analysis.mean_cost(point, cost) for point in points])
    ends = 100 * np.array([analysis.interval(point) for point in points])
    order = np.argsort(x, kind="stable")
    axes.fill_between(
        x[order], *ends[order].T, color=colour, alpha=0.13, linewidth=0, label="95 % interval"
    )


def _marks(axes: Axes, analysis: Analysis, cost: str) -> None:
    """Mark the rungs of the ladder and the profiles of the policy."""
    rungs = analysis.points.get(LADDER, [])
    for certified, face, label in ((True, "black", "certified rung"), (False, "white", "rung")):
        chosen = [rung for rung in rungs if bool(rung.certificates) == certified]
        if chosen:
            x, y = _places(analysis, chosen, cost)
            axes.plot(x, y, "D", color="black", markerfacecolor=face, markersize=5, label=label)
    for profile in analysis.points.get(PROFILES, []):
        x, y = _places(analysis, [profile], cost)
        axes.plot(x, y, "*", color="black", markersize=9)
        axes.annotate(
            profile.name, (x[0], y[0]), (5, -11), textcoords="offset points", fontsize=8.5
        )


def _number_layers(axes: Axes, analysis: Analysis, cost: str) -> None:
    static = analysis.points[STATIC]
    x, y = _places(analysis, static, cost)
    every = -(-len(static) // 12)
    for place in range(0, len(static), every):
        axes.annotate(
            str(analysis.observed.traits.exits[place]),
            (x[place], y[place]),
            (0, -12),
            textcoords="offset points",
            ha="center",
            fontsize=8,
            color=STATIC_COLOUR,
        )


def _places(analysis: Analysis, points: list[Point], cost: str) -> tuple[list[float], list[float]]:
    """Return the points' costs and metrics in hundredths, in the order of cost."""
    found = sorted((analysis.mean_cost(p, cost), 100 * analysis.value(p)) for p in points)
    return [x for x, _ in found], [y for _, y in found]
