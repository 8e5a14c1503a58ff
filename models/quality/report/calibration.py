"""Whether an exit is right as often as it says: the calibration curve and its error."""

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from models.data.alignment import IGNORED
from models.quality.analysis import Analysis
from models.quality.card import hundredths
from models.quality.page import Block, Part, Picture, missing, table
from models.quality.recorded import Recorded
from models.quality.style import STATIC_COLOUR, as_svg, by_depth, new_figure, spread
from serve.rules.signals import confidence, sigmoid

_DECISIONS = {
    "single_label": "a text's label",
    "multi_label": "each label of a text: given or not",
    "token": "each word's tag",
}
_OF_THE_RULES = (
    "The temperatures are those of the certified rules. With them an exit's confidence is how "
    "likely it is to agree with full depth, not how likely it is to be right."
)
NUM_BINS = 10
_MOST_EXITS = 6

# (decisions,) the probability of what is decided, and whether it is right. A decision is a text's
# label, each of several labels, or each word's tag.
_Decisions: TypeAlias = tuple[NDArray[np.floating[Any]], NDArray[np.bool_]]


class Bins(NamedTuple):
    """Decisions in bins of equal width by their confidence.

    Attributes:
        ece: expected calibration error (Naeini et al. 2015): the mean distance of confidence and
            share of right decisions over the bins, by their number of decisions.
        counts: (bins,) decisions.
        confidence: (bins,) their mean; NaN in an empty bin.
        right: (bins,) share that is right; NaN in an empty bin.
    """

    ece: float
    counts: NDArray[np.int64]
    confidence: NDArray[np.float64]
    right: NDArray[np.float64]


class Reliability(NamedTuple):
    """One exit's confidence beside what came true.

    Attributes:
        layer: of the exit.
        bins: of the probabilities that answers carry.
        temperature: the exit's, at which rule confidence reads it.
        scaled_ece: the error at that temperature.
    """

    layer: int
    bins: Bins
    temperature: float
    scaled_ece: float


def calibration_part(analysis: Analysis, slug: str) -> Part:
    """Return the calibration curve and its error at every exit."""
    title, recorded = "Calibration", analysis.recorded
    task = recorded.traits.task
    if task == "regression":
        return missing(title, "a regression gives no probabilities")
    found = reliability(recorded)
    picture = Picture(
        f"{slug}-calibration.svg",
        f"Decisions ({_DECISIONS[task]}) by their probability, in bins of 10 points. On the dotted "
        "line an exit is right as often as it is sure; below it, too sure. ECE, the expected "
        "calibration error, is the mean distance from the line.",
        as_svg(_drawn(found)),
    )
    blocks: list[Block] = [picture]
    if {exit_.temperature for exit_ in found} != {1.0}:
        rows = [
            [e.layer, e.temperature, hundredths(e.bins.ece), hundredths(e.scaled_ece)]
            for e in found
        ]
        head = ("exit layer", "temperature", "ECE %", "ECE % at the temperature")
        blocks.append(table(head, rows))
        blocks += [_OF_THE_RULES] if analysis.model.ladder else []
    figures = [
        {"layer": exit_.layer, **exit_.bins._asdict(), "scaled_ece": exit_.scaled_ece}
        for exit_ in found
    ]
    return Part(title, blocks, figures)


def reliability(recorded: Recorded) -> list[Reliability]:
    """Return the curve of every exit; not for a regression, which gives no probabilities."""
    table, small = recorded.traits.table_temperature, recorded.traits.small
    before = [] if table is None else [table]
    before += small.temperatures if small else ()
    temperatures = (*before, *recorded.temperatures)
    return [
        Reliability(
            layer,
            binned(decisions_of(recorded, logits)),
            temperature,
            binned(decisions_of(recorded, logits, temperature)).ece,
        )
        for layer, logits, temperature in zip(
            recorded.traits.layers, recorded.logits, temperatures, strict=True
        )
    ]


def binned(decisions: _Decisions) -> Bins:
    """Sort decisions into bins, and return the calibration error."""
    sure, right = (each[~np.isnan(decisions[0])] for each in decisions)  # a table may say nothing
    place = np.minimum((sure * NUM_BINS).astype(np.int64), NUM_BINS - 1)
    counts = np.bincount(place, minlength=NUM_BINS)
    with np.errstate(invalid="ignore"):
        mean_sure = np.bincount(place, sure, NUM_BINS) / counts
        mean_right = np.bincount(place, right, NUM_BINS) / counts
    gap = np.nan_to_num(np.abs(mean_sure - mean_right))
    ece = float((counts * gap).sum() / max(counts.sum(), 1))
    return Bins(ece, counts, mean_sure, mean_right)


def decisions_of(
    recorded: Recorded, logits: NDArray[np.float32], temperature: float = 1.0
) -> _Decisions:
    """Return what one exit decides."""
    gold, task = recorded.gold, recorded.traits.task
    assert gold is not None
    if task == "multi_label":
        p = sigmoid(logits / np.float32(temperature))
        return (np.maximum(p, 1 - p).ravel(), ((logits > 0) == (gold > 0.5)).ravel())
    sure, right = confidence(logits, temperature), logits.argmax(axis=-1) == gold
    if task == "token":
        words = gold != IGNORED
        return (sure[words], right[words])
    return (sure, right)


def _drawn(found: list[Reliability]) -> Figure:
    """Draw a line for each exit, for at most six of them."""
    figure = new_figure((6.5, 4.2))
    axes = figure.add_subplot()
    axes.axline((100, 100), slope=1, linestyle=":", color=STATIC_COLOUR, linewidth=1)
    places, colours = spread(len(found), _MOST_EXITS), by_depth(len(found))
    for layer, bins, *_ in (found[place] for place in places):
        filled = bins.counts > 0
        axes.plot(
            100 * bins.confidence[filled],
            100 * bins.right[filled],
            "o-",
            color=colours[[each.layer for each in found].index(layer)],
            markersize=3.5,
            linewidth=1.2,
            label=f"exit {layer}: ECE {100 * bins.ece:.1f} %",
        )
    axes.set_xlim(right=101.5)
    axes.set_ylim(-2, 103)
    axes.set_xlabel("confidence, %")
    axes.set_ylabel("right, %")
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8.5)
    return figure
