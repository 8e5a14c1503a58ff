"""Overthinking: texts that an earlier exit has right and full depth has wrong.

The word and the oracle are those of Kaya et al. 2019 (Shallow-Deep Networks).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.evaluation.answers import Answers


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


def overthinking(answers: Answers, exits: tuple[int, ...]) -> Overthinking:
    """Compare every exit's answers with the correct ones.

    Args:
        answers: of all exits.
        exits: their layers.
    """
    right = answers.right
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
