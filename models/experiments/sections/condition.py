"""When patience beats the last layer: the condition of PABEE's theorem, with a model's numbers."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.experiments.context import Context
from models.experiments.figures import Figure, table
from models.experiments.page import Section
from models.experiments.tried import Tried
from models.quality.recorded import Recorded
from models.quality.rule_families import PATIENCE
from serve.rules import PatienceRule

_ABOUT = (
    "PABEE's theorem is for two labels, with exits that err independently of each other: the "
    "exits before the last are wrong with probability q, the last one with p. Then patience t of "
    "n exits has fewer errors than the last exit if n - t < (1 / 2q)^t p / q - p. Below are the "
    "patiences that the theorem calls better, those that are more accurate than full depth on the "
    "texts, and those for which that is shown. Exits of one model err together: the last two "
    "columns tell, for the theorem's smallest t, how often t + 1 exits in a row are all wrong."
)
_PATIENCES = ["better by the theorem", "more accurate", "shown"]
_HEAD = ["model", "n", "q", "p", *_PATIENCES, "t + 1 exits wrong %", "if independent %"]


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
    gained: Figure
    wrong: float
    wrong_if_independent: float


def write(context: Context) -> Iterator[str]:
    """Yield a table with a row for each model that is there."""
    there = SECTION.there(context)
    yield table(_HEAD, [[name, *_cells(context.measured(name).recorded)] for name in there])


SECTION = Section(
    "When patience beats the last layer",
    _ABOUT,
    write,
    models=("sst2-mpnet", "sst2-minilm", "mrpc-mpnet"),
)


def right_side(patience: int, q: float, p: float) -> float:
    """Return what n - t must lie below, so that patience t has fewer errors than the last exit."""
    return (1 / (2 * q)) ** patience * p / q - p if q else math.inf


def patiences(recorded: Recorded) -> list[Patience]:
    """Try every patience that may leave early."""
    wrong, q, p = _errors(recorded)
    count, rates = len(wrong), wrong.mean(axis=1)
    each = range(1, count - 1)
    tried = Tried(recorded, {PATIENCE: [PatienceRule(patience=t) for t in each]})
    found = []
    for t, point in zip(each, tried.points[PATIENCE], strict=True):
        runs = [slice(start, start + t + 1) for start in range(count - 1 - t)]
        together = np.mean([wrong[run].all(axis=0).mean() for run in runs])
        alone = np.mean([rates[run].prod() for run in runs])
        promised, gained = count - t < right_side(t, q, p), tried.of(point) - tried.full
        found.append(Patience(t, promised, gained, float(together), float(alone)))
    return found


def _errors(recorded: Recorded) -> tuple[NDArray[np.bool_], float, float]:
    """Return (exits, rows) what is wrong, and its share before the last exit and at it."""
    assert recorded.right is not None
    wrong = ~recorded.right
    return wrong, float(wrong[:-1].mean()), float(wrong[-1].mean())


def _cells(recorded: Recorded) -> list[str]:
    found, (errors, q, p) = patiences(recorded), _errors(recorded)
    promised = [each for each in found if each.promised]
    better = [each for each in found if each.gained.value > 0]
    shown = [each for each in better if each.gained.differs]
    wrong = ["-", "-"]
    if promised:
        first = promised[0]
        wrong = [f"{100 * first.wrong:.2f}", f"{100 * first.wrong_if_independent:.3f}"]
    each_list = (_listed(each) for each in (promised, better, shown))
    return [str(len(errors)), f"{q:.3f}", f"{p:.3f}", *each_list, *wrong]


def _listed(found: list[Patience]) -> str:
    each = [one.patience for one in found]
    in_a_row = len(each) > 2 and each[-1] - each[0] == len(each) - 1
    return f"{each[0]} to {each[-1]}" if in_a_row else ", ".join(map(str, each)) or "none"
