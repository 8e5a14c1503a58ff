"""Overthinking: texts that an earlier exit has right and full depth has wrong.

The word and the oracle are those of Kaya et al. 2019 (Shallow-Deep Networks).
"""

from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from models.quality.analysis import Analysis
from models.report.markdown import Picture, percent
from models.report.parts.part import Part, missing
from models.report.style import RIGHT, WRONG, as_svg, legend_above, new_figure

TITLE = "Overthinking"
_RIGHT = {
    "single_label": "An answer is right if it is the correct label.",
    "multi_label": "An answer is right if it is the whole set of labels.",
    "token": "An answer is right if it has all entities of the text and no others.",
}


class Overthinking(NamedTuple):
    """What a rule that knew the correct answers could do.

    Attributes:
        overthought: share of texts that some earlier exit has right and the last one wrong.
        rescued: share of texts that the last exit has right and all earlier ones wrong.
        right_now_wrong_later: (exits,) share of texts right at the exit and wrong at the last.
        wrong_now_right_later: (exits,) share of texts wrong at the exit and right at the last.
        oracle_accuracy: share of texts that any exit has right.
        oracle_depth: mean layers, if each text leaves at the first exit that has it right, and at
            the last one if none has.
        oracle_shares: (exits,) where texts then leave.
        full_accuracy: share of texts that the last exit has right.
    """

    overthought: float
    rescued: float
    right_now_wrong_later: tuple[float, ...]
    wrong_now_right_later: tuple[float, ...]
    oracle_accuracy: float
    oracle_depth: float
    oracle_shares: tuple[float, ...]
    full_accuracy: float


def overthinking(right: NDArray[np.bool_], exits: tuple[int, ...]) -> Overthinking:
    """Compare every exit's answers with the correct ones.

    Args:
        right: (exits, rows) whether an answer is correct.
        exits: their layers.
    """
    last, earlier = right[-1], right[:-1].any(axis=0)
    leaves_at = first_right(right)
    shares = np.bincount(leaves_at, minlength=len(exits)) / len(last)
    return Overthinking(
        overthought=float((earlier & ~last).mean()),
        rescued=float((last & ~earlier).mean()),
        right_now_wrong_later=tuple((right & ~last).mean(axis=1).tolist()),
        wrong_now_right_later=tuple((~right & last).mean(axis=1).tolist()),
        oracle_accuracy=float(right.any(axis=0).mean()),
        oracle_depth=float(shares @ np.array(exits)),
        oracle_shares=tuple(shares.tolist()),
        full_accuracy=float(last.mean()),
    )


def first_right(right: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Return (rows,) the first exit that is right; the last one where none is."""
    found: NDArray[np.intp] = np.where(right.any(axis=0), right.argmax(axis=0), len(right) - 1)
    return found


def overthinking_part(analysis: Analysis, slug: str) -> Part:
    """Return how much a rule that knew the answers could do."""
    exits, right = analysis.exits, analysis.recorded.right
    if right is None:
        return missing(TITLE, "a regression's values are neither right nor wrong")
    if len(exits) < 2:
        return missing(TITLE, "the model has a single exit")
    found = overthinking(right, exits)
    words = (
        f"{_RIGHT[analysis.recorded.traits.task]} {percent(found.overthought, 2)} of the texts "
        f"have a right answer at an earlier exit and a wrong one at full depth; "
        f"{percent(found.rescued, 2)} have a right answer at full depth only. An oracle that let "
        f"each text leave at the first exit that has it right would be right on "
        f"{percent(found.oracle_accuracy, 2)} of the texts "
        f"({percent(found.full_accuracy, 2)} at full depth) with {found.oracle_depth:.2f} mean "
        f"layers of {exits[-1]}."
    )
    picture = Picture(
        f"{slug}-overthinking.svg",
        "What running on from an exit to the end does to the answer.",
        as_svg(_drawn(found, exits)),
    )
    return Part(TITLE, [words, picture], found._asdict())


def _drawn(found: Overthinking, exits: tuple[int, ...]) -> Figure:
    """Draw, for each exit, how many texts going on from it to the end spoils and repairs."""
    figure = new_figure((9.0, 3.2))
    axes = figure.add_subplot()
    place, width = np.arange(len(exits) - 1), 0.38
    spoiled = 100 * np.array(found.right_now_wrong_later[:-1])
    repaired = 100 * np.array(found.wrong_now_right_later[:-1])
    axes.bar(
        place - width / 2, repaired, width, color=RIGHT, label="wrong here, right at full depth"
    )
    axes.bar(
        place + width / 2, spoiled, width, color=WRONG, label="right here, wrong at full depth"
    )
    axes.set_xticks(place, [str(layer) for layer in exits[:-1]])
    axes.grid(visible=False, axis="x")
    axes.set_xlabel("exit layer")
    axes.set_ylabel("share of texts, %")
    legend_above(axes)
    return figure
