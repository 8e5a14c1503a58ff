"""ELUE's picture: performance against operations, and against parameters."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from models.elue.reports import Measured
from models.elue.score import CLASSES, Place, curve
from models.quality.card import title, unit
from models.quality.points import STATIC
from models.quality.style import COLOURS, STATIC_COLOUR, new_figure

_WIDE, _HIGH, _LEGEND = 9.0, 3.3, 0.8
_STATIC: dict[str, Any] = {"color": STATIC_COLOUR, "markersize": 3}
_LINES = {
    "static models": _STATIC | {"linestyle": "--", "marker": "s"},
    "reference": _STATIC | {"linestyle": ":", "marker": "d"},
}


def draw(
    models: Sequence[Measured], references: Sequence[Measured] = (), family: str | None = None
) -> Figure:
    """Draw a row of two panels for each task; to be called within `mpl.rc_context(STYLE)`.

    Args:
        models: each is a line. Models of a single exit are one line together.
        references: static models, whose mean is a dotted line.
        family: the kind of rule; None for the one that a report judges by.
    """
    tasks = list(dict.fromkeys(model.task for model in models))
    figure = new_figure((_WIDE, _HIGH * len(tasks) + _LEGEND))
    panels = figure.subplots(len(tasks), 2, sharey="row", squeeze=False)
    several = [model for model in models if _has_rules(model)]
    names = list(dict.fromkeys(model.name for model in several))
    labels: dict[str, Any] = {}
    for task, (by_flops, by_size) in zip(tasks, panels, strict=True):
        for model in several:
            if model.task == task:
                colour = COLOURS[names.index(model.name) % len(COLOURS)]
                _draw_model(by_flops, by_size, model, colour, family)
        single = [model for model in models if not _has_rules(model)]
        for label, static in zip(_LINES, (single, references), strict=True):
            _draw_static(by_flops, by_size, [m for m in static if m.task == task], label)
        metric = next(model.metric for model in models if model.task == task)
        by_flops.set_ylabel(f"{title(metric)}, {unit(metric)}")
        for axes in (by_flops, by_size):
            axes.set_title(task)
        _mark_classes(by_size)
        by_flops.set_xlim(left=0)
        for handle, label in zip(*by_flops.get_legend_handles_labels(), strict=True):
            labels[label] = handle
    panels[-1, 0].set_xlabel("mean MFLOPs per text")
    panels[-1, 1].set_xlabel("million parameters")
    figure.legend(labels.values(), labels.keys(), loc="outside lower left", ncols=2)
    return figure


def _has_rules(model: Measured) -> bool:
    return len(model.points()) > 1 or model.judged_by != STATIC


def _draw_model(
    by_flops: Axes, by_size: Axes, model: Measured, colour: str, family: str | None
) -> None:
    places = sorted(model.points(family))
    label = f"{model.name}, {family or model.judged_by}"
    by_flops.plot(*zip(*places, strict=True), "o-", color=colour, label=label, markersize=3)
    if model.parameters:
        size = model.parameters / 1e6
        by_size.plot([size] * len(places), [y for _, y in places], "o-", color=colour, markersize=3)


def _draw_static(by_flops: Axes, by_size: Axes, models: Sequence[Measured], label: str) -> None:
    places = [place for model in models for place in model.points(STATIC)]
    sizes: list[Place] = [
        (model.parameters / 1e6, performance)
        for model in models
        if model.parameters and not _has_rules(model)
        for _, performance in model.points(STATIC)
    ]
    if places:
        by_flops.plot(*zip(*curve(places), strict=True), label=label, **_LINES[label])
    if sizes:
        by_size.plot(*zip(*curve(sizes), strict=True), **_LINES[label])


def _mark_classes(axes: Axes) -> None:
    for size in CLASSES:
        axes.axvline(size, color=STATIC_COLOUR, linewidth=0.8, alpha=0.5, zorder=0.5)
        place: dict[str, Any] = {
            "xycoords": axes.get_xaxis_transform(),
            "textcoords": "offset points",
        }
        style: dict[str, Any] = {"ha": "center", "fontsize": 8, "color": STATIC_COLOUR}
        axes.annotate(f"{size} M", (size, 1), (0, 2), **place, **style)
    axes.set_xlim(0, max(CLASSES[-1] * 1.08, axes.get_xlim()[1]))
