"""A run's pictures: throughput, latency, exits and errors over time, and a ramp's steps."""

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator

from loadtest.load.figures import Figures, RampResult
from loadtest.load.report.timeline import Timeline
from models.report.style import STYLE, legend_above, new_figure

_COLOURS = {"p50": "#4c9f70", "p95": "#e09f3e", "p99": "#c1443c"}


def draw(line: Timeline, figures: Figures, folder: Path) -> list[tuple[str, Path]]:
    """Draw all pictures of a run; return titles and files."""
    over_time = [
        ("Throughput and users over time", "throughput.png", _throughput),
        ("Latency over time", "latency.png", _latency),
        ("Exit layers over time", "exits.png", _exits),
    ]
    if figures.total.failures:
        over_time.append(("Failures over time", "errors.png", _errors))
    drawn = []
    with mpl.rc_context(STYLE):
        for title, name, paint in over_time:
            figure = new_figure()
            paint(figure.add_subplot(), line)
            drawn.append((title, _save(figure, folder / name)))
        if figures.ramp and figures.ramp.steps:
            figure = new_figure()
            _ramp(figure, figures.ramp)
            drawn.append(("The ramp", _save(figure, folder / "ramp.png")))
    return drawn


def _save(figure: Figure, path: Path) -> Path:
    figure.savefig(path)
    return path


def _over_time(axes: Axes, line: Timeline, title: str) -> None:
    every = "second" if line.bin_s == 1 else f"{line.bin_s:.0f} seconds"
    axes.set_title(f"{title}, by {every}")
    axes.set_xlabel("seconds since the run began")
    axes.set_xlim(0, line.starts_s[-1] + line.bin_s)


def _steps(axes: Axes, line: Timeline, values: np.ndarray, **style: Any) -> None:
    """Draw bins as a line through their middles."""
    axes.plot(line.starts_s + line.bin_s / 2, values, **style)


def _throughput(axes: Axes, line: Timeline) -> None:
    _over_time(axes, line, "Requests and users")
    _steps(axes, line, line.sent, color="#e09f3e", label="sent")
    _steps(axes, line, line.answered, color="#33658a", label="answered")
    axes.set_ylabel("requests per second")
    axes.set_ylim(0, max(1.0, line.answered.max(), line.sent.max()) * 1.1)
    users = axes.twinx()
    users.grid(visible=False)
    users.spines["right"].set_visible(True)
    _steps(users, line, line.users, color="#888888", linestyle="--", label="users")
    users.set_ylabel("users")
    users.set_ylim(0, max(1.0, line.users.max()) * 1.1)
    users.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    handles = [*axes.get_lines(), *users.get_lines()]
    legend_above(axes, handles=handles)


def _latency(axes: Axes, line: Timeline) -> None:
    _over_time(axes, line, "Latency of answered requests")
    for name, colour in reversed(_COLOURS.items()):
        _steps(axes, line, getattr(line, f"{name}_ms"), color=colour, label=name)
    axes.set_yscale("log")
    _readable_log_axis(axes)
    axes.set_ylabel("milliseconds (logarithmic)")
    legend_above(axes)


def _readable_log_axis(axes: Axes) -> None:
    """Label 1, 2, 5, 10, ... milliseconds."""
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda ms, _: f"{ms:g}"))
    axes.minorticks_off()


def _exits(axes: Axes, line: Timeline) -> None:
    """Draw the share of answers from each layer, stacked, the first layer at the bottom."""
    _over_time(axes, line, "Where texts left")
    layers = len(line.exits)
    totals = line.exits.sum(axis=0)
    shares = 100 * line.exits / np.maximum(totals, 1)
    colours = mpl.colormaps["viridis"](np.linspace(0.95, 0.1, layers))
    below = np.zeros(len(totals))
    for index in range(layers):
        axes.bar(
            line.starts_s,
            shares[index],
            width=line.bin_s,
            bottom=below,
            align="edge",
            color=colours[index],
            label=f"{index + 1}",
        )
        below = below + shares[index]
    axes.grid(visible=False)
    axes.set_ylim(0, 100)
    axes.set_ylabel("share of answers, %")
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(
        handles[::-1], labels[::-1], title="exit layer", loc="center left", bbox_to_anchor=(1, 0.5)
    )


def _errors(axes: Axes, line: Timeline) -> None:
    _over_time(axes, line, "Failed requests")
    axes.bar(line.starts_s, line.failed, width=line.bin_s, align="edge", color="#c1443c")
    axes.set_ylabel("failures per second")
    axes.set_ylim(0, max(1.0, line.failed.max()) * 1.15)


def _ramp(figure: Figure, found: RampResult) -> None:
    """Draw throughput and latency against load, with the knee marked."""
    left, right = figure.subplots(1, 2)
    users = [step.users for step in found.steps]
    offered = [step.offered for step in found.steps]
    load = users if offered[0] is None else offered
    unit = "users" if offered[0] is None else "requests offered per second"
    left.plot(load, [step.per_second for step in found.steps], "o-", color="#33658a")
    left.set_title("Throughput")
    left.set_ylabel("answered requests per second")
    left.set_ylim(0, 1.1 * max(1.0, *(step.per_second for step in found.steps)))
    for name in ("p50", "p99"):
        times = [getattr(step, f"{name}_ms") for step in found.steps]
        right.plot(load, times, "o-", color=_COLOURS[name], label=name)
    right.set_title("Latency")
    right.set_ylabel("milliseconds (logarithmic)")
    right.set_yscale("log")
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.set_xticks(load, [f"{value:g}" for value in load])
        axes.minorticks_off()
        axes.set_xlabel(unit)
        if found.knee:
            at = load[found.steps.index(found.knee)]
            axes.axvline(at, color="#888888", linestyle=":", label="knee")
    _readable_log_axis(right)
    for axes in (left, right):
        legend_above(axes)
