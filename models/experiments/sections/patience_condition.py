"""When patience beats the last layer: the condition of PABEE's theorem, with a model's numbers."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.experiments.section import Context, Section
from models.experiments.sections.models import (
    MRPC_MPNET,
    SST2_MINILM,
    SST2_MPNET,
    not_there,
)
from models.experiments.sections.sampled import Sampled
from models.experiments.sections.tried import Tried
from models.quality.page import table
from models.quality.recorded import Recorded
from models.quality.rule_families import PATIENCE
from serve.rules import PatienceRule

MODELS = (SST2_MPNET, SST2_MINILM, MRPC_MPNET)

_ABOUT = (
    "PABEE's theorem is for two labels, with exits that err independently of each other: the "
    "exits before the last are wrong with probability q, the last one with p. Then patience t of "
    "n exits has fewer errors than the last exit if n - t < (1 / 2q)^t p / q - p. Below are the "
    "patiences that the theorem calls better, those that are more accurate than full depth on the "
    "texts, and those for which that is shown. Exits of one model err together: the last two "
    "columns tell, for the theorem's smallest t, how often t + 1 exits in a row are all wrong."
)
_HEAD = [
    "model",
    "n",
    "q",
    "p",
    "better by the theorem",
    "more accurate",
    "shown",
    "t + 1 exits wrong %",
    "if independent %",
]


class Patience(NamedTuple):
    """One patience.

    Attributes:
        patience: t.
        promised: whether the condition holds.
        gained: accuracy less full depth's.
        wrong: share of texts that t + 1 exits in a row have wrong, on average over such runs of
            exits before the last.
        wrong_if_independent: the same, if exits erred independently.
    """

    patience: int
    promised: bool
    gained: Sampled
    wrong: float
    wrong_if_independent: float


def write(context: Context) -> str:
    """Return a table with a row for each model that is there."""
    there = [model for model in MODELS if model.is_trained(context)]
    rows = [[model.name, *_cells(model.recorded(context))] for model in there]
    blocks = [_ABOUT, table(_HEAD, rows) if rows else ""]
    return "\n\n".join(block for block in (*blocks, not_there(context, MODELS)) if block)


SECTION = Section("When patience beats the last layer", (), write)


def right_side(patience: int, q: float, p: float) -> float:
    """Return what n - t must lie below, so that patience t has fewer errors than the last exit."""
    return (1 / (2 * q)) ** patience * p / q - p if q else math.inf


def patiences(recorded: Recorded) -> list[Patience]:
    """Try every patience that may leave early."""
    right = recorded.right
    assert right is not None
    count, wrong = len(right), ~right
    q, p = float(wrong[:-1].mean()), float(wrong[-1].mean())
    each = range(1, count - 1)
    tried = Tried(recorded, {PATIENCE: [PatienceRule(patience=t) for t in each]})
    return [
        Patience(
            t,
            count - t < right_side(t, q, p),
            tried.of(point) - tried.full,
            _in_a_row(wrong[:-1], t + 1),
            _independent(wrong[:-1], t + 1),
        )
        for t, point in zip(each, tried.points[PATIENCE], strict=True)
    ]


def _cells(recorded: Recorded) -> list[str]:
    found, right = patiences(recorded), recorded.right
    assert right is not None
    q, p = float((~right[:-1]).mean()), float((~right[-1]).mean())
    promised = [each for each in found if each.promised]
    better = [each for each in found if each.gained.value > 0]
    shown = [each for each in better if each.gained.shown]
    wrong = ["-", "-"]
    if promised:
        first = promised[0]
        wrong = [f"{100 * first.wrong:.2f}", f"{100 * first.wrong_if_independent:.3f}"]
    each_list = (_listed(each) for each in (promised, better, shown))
    return [str(len(right)), f"{q:.3f}", f"{p:.3f}", *each_list, *wrong]


def _listed(found: list[Patience]) -> str:
    each = [str(one.patience) for one in found]
    in_a_row = len(found) > 2 and found[-1].patience - found[0].patience == len(found) - 1
    return f"{each[0]} to {each[-1]}" if in_a_row else ", ".join(each) or "none"


def _in_a_row(wrong: NDArray[np.bool_], length: int) -> float:
    starts = range(len(wrong) - length + 1)
    return float(np.mean([wrong[start : start + length].all(axis=0).mean() for start in starts]))


def _independent(wrong: NDArray[np.bool_], length: int) -> float:
    rates, starts = wrong.mean(axis=1), range(len(wrong) - length + 1)
    return float(np.mean([rates[start : start + length].prod() for start in starts]))
