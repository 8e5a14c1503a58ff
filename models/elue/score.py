"""ELUE's score: how far a model lies above a static one at the same number of operations.

Liu et al. 2022, "Towards Efficient NLP: A Standard Evaluation and A Strong Baseline".
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

# MFLOPs per text, and performance.
Place: TypeAlias = tuple[float, float]
# ELUE's leader boards: models of up to so many million parameters.
CLASSES = (40, 55, 70, 110)
# Points whose MFLOPs differ by a smaller share are of the same depth, in several seeds.
_SAME = 1e-6


class EluScore(NamedTuple):
    """A score in the unit of the performance.

    Attributes:
        score: mean distance to the reference; above 0 the model is better.
        clamped: how many points lie outside the reference's range of MFLOPs. They are compared
            with its nearest end.
    """

    score: float
    clamped: int


def elue_score(points: Sequence[Place], reference: Sequence[Place]) -> EluScore:
    """Return (1/m) * sum over k of (p_k - p_reference(f_k)).

    The reference is interpolated linearly between its points; those with equal MFLOPs, as of
    several seeds, count by their mean. Outside its range ELUE defines nothing: there the nearest
    end stands for it.

    Args:
        points: (f_k, p_k), the model's m operating points, in any order.
        reference: the static model's, in any order and number.

    Raises:
        ValueError: there are no points, no reference, or a number that is not finite.
    """
    if not points or not reference:
        raise ValueError("a score needs at least one point of the model and one of the reference")
    flops, performance = np.array(points, np.float64).T
    if not np.isfinite([*points, *reference]).all():
        raise ValueError("a score needs finite numbers")
    known, values = zip(*curve(reference), strict=True)
    above = performance - np.interp(flops, known, values)
    # A share of rounding, so that a point at an end does not count as outside.
    outside = (flops < known[0] * (1 - _SAME)) | (flops > known[-1] * (1 + _SAME))
    return EluScore(float(above.mean()), int(outside.sum()))


def curve(reference: Sequence[Place]) -> list[Place]:
    """Return a reference's points, cheap first; those with equal MFLOPs become their mean."""
    groups: list[list[Place]] = []
    for place in sorted(reference):
        if groups and place[0] <= groups[-1][0][0] * (1 + _SAME):
            groups[-1].append(place)
        else:
            groups.append([place])
    return [(group[0][0], float(np.mean([p for _, p in group]))) for group in groups]


def size_class(parameters: int | None) -> str:
    """Return the leader board that a model of so many parameters stands on."""
    if parameters is None:
        return "-"
    fitting = [f"{size} M" for size in CLASSES if parameters <= size * 1e6]
    return fitting[0] if fitting else f"above {CLASSES[-1]} M"


def rank(score: float, others: Sequence[float]) -> str:
    """Return a score's place among all of a leader board, itself included."""
    return f"{1 + sum(other > score for other in others)} of {len(others)}"
