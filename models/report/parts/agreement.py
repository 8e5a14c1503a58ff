"""Agreement between exits."""

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from models.quality.analysis import Analysis
from models.quality.recorded import Recorded
from models.quality.scores import pearson
from models.report.markdown import Picture
from models.report.parts.part import Part, missing
from models.report.style import as_svg, new_figure

TITLE = "Agreement between exits"
_CAPTIONS = {
    "single_label": "Share of texts that get the same label from two exits, in percent.",
    "multi_label": "Share of texts that get the same set of labels from two exits, in percent.",
    "token": "Share of texts in which two exits find the same entities, in percent.",
    "regression": "Pearson correlation of two exits' values, times 100: values are never quite "
    "the same.",
}


_MOST_NUMBERS = 12


def agreement_part(analysis: Analysis, slug: str) -> Part:
    """Return how often two exits give the same answer, for every two."""
    exits, task = analysis.exits, analysis.recorded.traits.task
    if len(exits) < 2:
        return missing(TITLE, "the model has a single exit")
    matrix = agreement(analysis.recorded)
    measure = "pearson" if task == "regression" else "agreement"
    svg = as_svg(_drawn(matrix, exits, measure))
    picture = Picture(f"{slug}-agreement.svg", _CAPTIONS[task], svg)
    return Part(TITLE, [picture], {"exits": exits, "matrix": matrix, "measure": measure})


def agreement(recorded: Recorded) -> NDArray[np.float64]:
    """Return (exits, exits) the share of texts with the same answer.

    Of a regression it is the Pearson correlation of the values, which are never quite the same.
    """
    if recorded.answers is not None:
        same: NDArray[np.float64] = np.mean(
            recorded.answers[:, None] == recorded.answers[None], axis=2
        )
        return same
    values = recorded.logits[..., 0]
    return np.array([[pearson(one, other) for other in values] for one in values])


def _drawn(matrix: NDArray[np.float64], exits: tuple[int, ...], measure: str) -> Figure:
    """Draw the matrix, with numbers where they fit."""
    num_exits = len(exits)
    side = min(1.8 + 0.55 * num_exits, 8.0)
    figure = new_figure((side + 1.0, side))
    axes = figure.add_subplot()
    percent = 100 * matrix
    lowest = float(percent.min())
    image = axes.imshow(percent, cmap="cividis", vmin=lowest, vmax=100)
    labels = [str(layer) for layer in exits]
    axes.set_xticks(range(num_exits), labels)
    axes.set_yticks(range(num_exits), labels)
    axes.set_xlabel("exit layer")
    axes.set_ylabel("exit layer")
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    if num_exits <= _MOST_NUMBERS:
        for row in range(num_exits):
            for column in range(num_exits):
                value = percent[row, column]
                light = value > (lowest + 100) / 2
                axes.text(
                    column,
                    row,
                    "100" if value == 100 else f"{min(value, 99.9):.1f}",
                    ha="center",
                    va="center",
                    fontsize=8.5,
                    color="black" if light else "white",
                )
    what = "same answer, %" if measure == "agreement" else "Pearson correlation x 100"
    figure.colorbar(image, ax=axes, shrink=0.8, label=what)
    return figure
