"""The metrics of `models.evaluation.scores`, and those that the tables of GLUE and ELUE print.

MCC is GLUE's metric of CoLA. The mean of accuracy and F1 is printed for MRPC and QQP, that of
Pearson's and Spearman's correlations for STS-B.
"""

import numpy as np
from numpy.typing import NDArray

from models.evaluation.scores import Array, score
from models.recorded.answers import decided
from serve.rules.traits import Traits

MCC, ACCURACY_F1, CORRELATIONS = "mcc", "accuracy_and_f1", "pearson_and_spearman"
_MEANS = {ACCURACY_F1: ("accuracy", "f1"), CORRELATIONS: ("pearson", "spearman")}


def benchmark_scores(traits: Traits, gold: Array, logits: NDArray[np.float32]) -> dict[str, float]:
    """Return all metrics of one set of answers, by name; arguments are those of `score`."""
    found = score(traits, gold, logits)
    if traits.task == "single_label":
        found[MCC] = mcc(decided(traits, logits), gold)
    means = {
        name: (found[one] + found[other]) / 2
        for name, (one, other) in _MEANS.items()
        if one in found and other in found
    }
    return found | means


def mcc(found: NDArray[np.int64], gold: NDArray[np.number]) -> float:
    """Return Matthews' correlation of (rows,) label ids; 0 if either array is constant.

    Of more than two labels it is Gorodkin's R_K, as in scikit-learn.
    """
    labels = np.union1d(found, gold)[:, None]
    said, right = found == labels, gold == labels  # each (labels, rows)
    rows, both = len(gold), float((said & right).sum())
    often_said, often_right = said.sum(axis=1), right.sum(axis=1)
    spread = (rows**2 - (often_said**2).sum()) * (rows**2 - (often_right**2).sum())
    above = rows * both - (often_said * often_right).sum()
    return float(above / np.sqrt(float(spread))) if spread > 0 else 0.0
