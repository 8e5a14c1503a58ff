"""ELUE's picture: performance against operations, and against parameters."""

from collections.abc import Iterable, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from models.elue.reports import Measured
from models.elue.score import Place, curve
from models.quality.card import title, unit
from models.quality.points import STATIC
from models.quality.style import COLOURS, STATIC_COLOUR, new_figure

# ELUE's leader boards: models of up to so many million parameters.
CLASSES = (40, 55, 70, 110)
_WIDE, _HIGH, _LEGEND = 9.0, 3.3, 0.8


def draw(
    models: Sequence[Measured], references: Sequence[Measured] = (), family: str | None = None
) -> Figure:
    """Draw a row of two panels for each task; to be called within `mpl.rc_context(STYLE)`.

    Args:
        models: each is a line. Models of a single exit are one line together.
        references: static models, whose mean is a dashed line.
        family: the kind of rule; None for the one that a report judges by.
    """
    tasks = list(dict.fromkeys(model.task for model in models))
    figure = new_figure((_WIDE, _HIGH * len(tasks) + _LEGEND))
    panels = figure.subplots(len(tasks), 2, sharey="row", squeeze=False)
    single = [model for model in models if not _has_rules(model)]
    several = [model for model in models if _has_rules(model)]
    names = dict.fromkeys(model.name for model in several)
    colours = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(names)}
    for task, (by_flops, by_size) in zip(tasks, panels, strict=True):
        for model in (m for m in several if m.task == task):
            _draw_model(by_flops, by_size, model, colours[model.name], family)
        for label, static in (("static models", single), ("reference", references)):
            _draw_static(by_flops, by_size, [m for m in static if m.task == task], label)
        metric = next(model.metric for model in models if model.task == task)
        by_flops.set_ylabel(f"{title(metric)}, {unit(metric)}")
        for axes in (by_flops, by_size):
            axes.set_title(task)
        _mark_classes(by_size)
        by_flops.set_xlim(left=0)
    for axes, label in zip(panels[-1], ("mean MFLOPs per text", "million parameters"), strict=True):
        axes.set_xlabel(label)
    _legend(figure, panels[:, 0])
    return figure


def _has_rules(model: Measured) -> bool:
    return len(model.points(STATIC)) > 1


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
    if not models:
        return
    places = [place for model in models for place in model.points(STATIC)]
    style: dict[str, Any] = {
        "color": STATIC_COLOUR,
        "linestyle": "--",
        "marker": "s",
        "markersize": 3,
    }
    if label == "reference":
        style |= {"linestyle": ":", "marker": "d"}
    by_flops.plot(*zip(*curve(places), strict=True), label=label, **style)
    sizes: list[Place] = [
        (model.parameters / 1e6, performance)
        for model in models
        if model.parameters and not _has_rules(model)
        for _, performance in model.points(STATIC)
    ]
    if sizes:
        by_size.plot(*zip(*curve(sizes), strict=True), **style)


def _mark_classes(axes: Axes) -> None:
    for size in CLASSES:
        axes.axvline(size, color=STATIC_COLOUR, linewidth=0.8, alpha=0.5, zorder=0.5)
        axes.annotate(
            f"{size} M",
            (size, 1),
            (0, 2),
            xycoords=axes.get_xaxis_transform(),
            textcoords="offset points",
            ha="center",
            fontsize=8,
            color=STATIC_COLOUR,
        )
    axes.set_xlim(0, max(CLASSES[-1] * 1.08, axes.get_xlim()[1]))


def _legend(figure: Figure, panels: Iterable[Axes]) -> None:
    """Put what any of the panels shows under the figure, once."""
    found = [axes.get_legend_handles_labels() for axes in panels]
    named = {
        label: handle
        for handles, labels in found
        for handle, label in zip(handles, labels, strict=True)
    }
    figure.legend(named.values(), named.keys(), loc="outside lower left", ncols=2)
