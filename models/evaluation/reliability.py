"""Whether an exit is right as often as it says: the calibration curve and its error."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.data.alignment import IGNORED
from models.evaluation.observation import Observation
from models.evaluation.predictions import Predictions
from serve.rules.signals import confidence, sigmoid

NUM_BINS = 10


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
        scaled_ece: the error at the exit's temperature, at which rule confidence reads it.
    """

    layer: int
    bins: Bins
    scaled_ece: float


class Decisions(NamedTuple):
    """What an exit decides: a text's label, each of several labels, or each word's tag.

    Attributes:
        sure: (decisions,) probability of what is decided.
        right: (decisions,) whether it is correct.
    """

    sure: NDArray[np.floating[Any]]
    right: NDArray[np.bool_]


def reliability(observed: Observation) -> list[Reliability]:
    """Return the curve of every exit; not for a regression, which gives no probabilities."""
    exits = zip(
        observed.traits.exits, observed.predictions.logits, observed.temperatures, strict=True
    )
    return [
        _of_exit(layer, observed.predictions, logits, temperature)
        for layer, logits, temperature in exits
    ]


def binned(decisions: Decisions) -> Bins:
    """Sort decisions into bins, and return the calibration error."""
    sure, right = decisions
    place = np.minimum((sure * NUM_BINS).astype(np.int64), NUM_BINS - 1)
    counts = np.bincount(place, minlength=NUM_BINS)
    with np.errstate(invalid="ignore"):
        mean_sure = np.bincount(place, sure, NUM_BINS) / counts
        mean_right = np.bincount(place, right, NUM_BINS) / counts
    gap = np.nan_to_num(np.abs(mean_sure - mean_right))
    ece = float((counts * gap).sum() / max(counts.sum(), 1))
    return Bins(ece, counts, mean_sure, mean_right)


def decisions_of(
    predictions: Predictions, logits: NDArray[np.float32], temperature: float = 1.0
) -> Decisions:
    """Return what one exit decides."""
    gold, task = predictions.gold, predictions.traits.task
    if task == "multi_label":
        p = sigmoid(logits / np.float32(temperature))
        return Decisions(np.maximum(p, 1 - p).ravel(), ((logits > 0) == (gold > 0.5)).ravel())
    sure, right = confidence(logits, temperature), logits.argmax(axis=-1) == gold
    if task == "token":
        words = gold != IGNORED
        return Decisions(sure[words], right[words])
    return Decisions(sure, right)


def _of_exit(
    layer: int, predictions: Predictions, logits: NDArray[np.float32], temperature: float
) -> Reliability:
    scaled = binned(decisions_of(predictions, logits, temperature)).ece
    return Reliability(layer, binned(decisions_of(predictions, logits)), scaled)
