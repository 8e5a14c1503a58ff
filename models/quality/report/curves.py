"""Quality against cost: rules as curves, beside stopping every text at the same layer."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator

from models.quality.analysis import Analysis
from models.quality.card import title, unit
from models.quality.costs import LAYERS, MFLOPS, MS
from models.quality.points import LADDER, PROFILES, STATIC, Point
from models.quality.style import COLOURS, STATIC_COLOUR, legend_below, new_figure
from serve.policy.ladder import OF_REFERENCE

_AXES = {
    LAYERS: "mean layers per text",
    MS: "mean milliseconds per lone text",
    MFLOPS: "mean MFLOPs per text",
}
_WIDE, _HIGH, _LEGEND = 4.0, 3.7, 0.7
# Of a profile's name: above its star and that much higher than one beside it, in points; and
# how near it has another beside it, as a share of the axis.
_LABEL_HEIGHT, _LINE, _LABEL_WIDTH = 6, 10, 0.3
_FRONT_COLOUR = "#e3e3e3"
_HALO = [withStroke(linewidth=2.5, foreground="white")]


def draw_families(analysis: Analysis) -> Figure:
    """Draw all families of one model's rules against each cost that is known."""
    figure, panels = _panels([analysis])
    for cost, axes in panels.items():
        x, y = _places(analysis.front(cost), cost)
        axes.plot(x, y, color=_FRONT_COLOUR, linewidth=6, label="Pareto front", zorder=0.5)
        _line(
            axes,
            _places(analysis.points[STATIC], cost),
            ("every text stops at layer k", STATIC_COLOUR, "s--"),
        )
        for colour, (name, points) in zip(COLOURS, analysis.families.items(), strict=False):
            _line(axes, _places(points, cost), (name, colour, "o-"))
        _mark_rungs(axes, analysis, cost)
        _mark_profiles(axes, analysis, cost)
        _number_layers(axes, analysis, cost)
    return _finish(figure, panels, [analysis])


def draw_models(named: Sequence[tuple[str, Analysis]]) -> Figure:
    """Draw the first family of each model, beside its static curve."""
    analyses = [analysis for _, analysis in named]
    figure, panels = _panels(analyses)
    for place, (name, analysis) in enumerate(named):
        colour, family = COLOURS[place % len(COLOURS)], analysis.headline
        for cost, axes in panels.items():
            if cost not in analysis.costs:
                continue
            static = _places(analysis.points[STATIC], cost)
            _line(axes, static, (f"{name}, stop at layer k", colour, "s:"))
            if family:
                points = _places(analysis.families[family], cost)
                _line(axes, points, (f"{name}, {family}", colour, "o-"))
    return _finish(figure, panels, analyses)


def _panels(analyses: Sequence[Analysis]) -> tuple[Figure, dict[str, Axes]]:
    """Return one panel for each cost that some model has."""
    known = [cost for cost in _AXES if any(cost in a.costs for a in analyses)]
    figure = new_figure((max(_WIDE * len(known), 6.5), _HIGH + _LEGEND))
    axes = figure.subplots(1, len(known), sharey=True, squeeze=False)[0]
    return figure, dict(zip(known, axes, strict=True))


def _finish(figure: Figure, panels: dict[str, Axes], analyses: Sequence[Analysis]) -> Figure:
    for cost, axes in panels.items():
        axes.set_xlabel(_AXES[cost])
        axes.set_xlim(left=0)
        axes.margins(y=0.08)
        if cost == LAYERS:
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    first = next(iter(panels.values()))
    metrics = dict.fromkeys(a.metric for a in analyses)
    first.set_ylabel(" or ".join(f"{title(m)}, {unit(m)}" for m in metrics))
    widest = max(panels.values(), key=lambda axes: len(axes.get_legend_handles_labels()[0]))
    legend_below(figure, widest, columns=3 if len(panels) > 1 else 2)
    return figure


def _line(axes: Axes, places: tuple[list[float], list[float]], pen: tuple[str, str, str]) -> None:
    """Draw a curve with a pen: what the legend calls it, its colour, its style."""
    label, colour, style = pen
    axes.plot(*places, style, color=colour, label=label, markersize=3.2, linewidth=1.4)


def _mark_rungs(axes: Axes, analysis: Analysis, cost: str) -> None:
    rungs = analysis.points.get(LADDER, [])
    for certified, face, label in ((True, "black", "certified rung"), (False, "white", "rung")):
        chosen = [rung for rung in rungs if _certified(rung) == certified]
        if chosen:
            x, y = _places(chosen, cost)
            axes.plot(x, y, "D", color="black", markerfacecolor=face, markersize=5, label=label)


def _certified(rung: Point) -> bool:
    return any(each.loss not in OF_REFERENCE for each in rung.certificates)


def _mark_profiles(axes: Axes, analysis: Analysis, cost: str) -> None:
    """Put a star and the name at each profile; those at one place share it."""
    named: dict[tuple[float, float], list[str]] = {}
    for profile in analysis.points.get(PROFILES, []):
        named.setdefault((profile.costs[cost], 100 * profile.value), []).append(profile.name)
    widest = analysis.full.costs[cost]
    before, height = -widest, _LABEL_HEIGHT
    for (x, y), names in sorted(named.items()):
        axes.plot(x, y, "*", color="black", markersize=9)
        on_the_left = x > 0.3 * widest
        near = x - before < _LABEL_WIDTH * widest
        before, height = x, height + _LINE if near else _LABEL_HEIGHT
        axes.annotate(
            ", ".join(names),
            (x, y),
            (-5 if on_the_left else 5, height),
            textcoords="offset points",
            ha="right" if on_the_left else "left",
            fontsize=8.5,
            path_effects=_HALO,
        )


def _number_layers(axes: Axes, analysis: Analysis, cost: str) -> None:
    static = analysis.points[STATIC]
    for place in range(0, len(static), -(-len(static) // 12)):
        point = static[place]
        axes.annotate(
            str(analysis.exits[place]),
            (point.costs[cost], 100 * point.value),
            (0, -12),
            textcoords="offset points",
            ha="center",
            fontsize=8,
            color=STATIC_COLOUR,
            path_effects=_HALO,
        )


def _places(points: list[Point], cost: str) -> tuple[list[float], list[float]]:
    """Return the points' costs and metrics in hundredths, in the order of cost."""
    found = sorted((p.costs[cost], 100 * p.value) for p in points)
    return [x for x, _ in found], [y for _, y in found]
