"""When patience beats the last layer: the condition of PABEE's theorem, with a model's numbers."""

import math
from collections.abc import Iterator

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
    "PABEE's theorem is for two labels and exits that err independently, with probability q before "
    "the last and p at the last: patience t of n exits has fewer errors than the last exit if "
    "n - t < (1 / 2q)^t p / q - p. Exits of one model err together: the last two columns tell, for "
    "the theorem's smallest t, how often t + 1 exits in a row are all wrong."
)
_PATIENCES = ["better by the theorem", "more accurate", "shown"]
_HEAD = ["model", "n", "q", "p", *_PATIENCES, "t + 1 exits wrong %", "if independent %"]


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


def patiences(recorded: Recorded) -> dict[int, tuple[bool, Figure]]:
    """Return, of every patience that may leave early, what the theorem says and what it gains.

    Returns:
        By patience, whether the condition holds, and accuracy less full depth's.
    """
    wrong, q, p = errors(recorded)
    each = range(1, len(wrong) - 1)
    tried = Tried(recorded, {PATIENCE: [PatienceRule(patience=t) for t in each]})
    return {
        t: (len(wrong) - t < right_side(t, q, p), tried.of(point) - tried.full)
        for t, point in zip(each, tried.points[PATIENCE], strict=True)
    }


def in_a_row(wrong: NDArray[np.bool_], length: int) -> tuple[float, float]:
    """Return the share of texts that so many exits in a row have wrong, the mean over such rows.

    Args:
        wrong: (exits, texts).
        length: how many exits.

    Returns:
        The share, and what it was if exits erred independently.
    """
    rows = [slice(start, start + length) for start in range(len(wrong) - length + 1)]
    together = np.mean([wrong[row].all(axis=0).mean() for row in rows])
    alone = np.mean([wrong.mean(axis=1)[row].prod() for row in rows])
    return float(together), float(alone)


def errors(recorded: Recorded) -> tuple[NDArray[np.bool_], float, float]:
    """Return (exits, texts) what is wrong, and its share before the last exit and at it."""
    assert recorded.right is not None
    wrong = ~recorded.right
    return wrong, float(wrong[:-1].mean()), float(wrong[-1].mean())


def _cells(recorded: Recorded) -> list[str]:
    found, (wrong, q, p) = patiences(recorded), errors(recorded)
    promised = [t for t, (holds, _) in found.items() if holds]
    better = [t for t, (_, gained) in found.items() if gained.value > 0]
    shown = [t for t in better if found[t][1].differs]
    shares = ["-", "-"]
    if promised:
        together, alone = in_a_row(wrong[:-1], promised[0] + 1)
        shares = [f"{100 * together:.2f}", f"{100 * alone:.3f}"]
    each_list = map(_listed, (promised, better, shown))
    return [str(len(wrong)), f"{q:.3f}", f"{p:.3f}", *each_list, *shares]


def _listed(each: list[int]) -> str:
    follows = len(each) > 2 and each[-1] - each[0] == len(each) - 1
    return f"{each[0]} to {each[-1]}" if follows else ", ".join(map(str, each)) or "none"
