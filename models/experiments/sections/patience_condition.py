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
    ZooModel,
    not_there,
)
from models.experiments.sections.sampled import Sampled
from models.experiments.sections.tried import Tried
from models.quality.recorded import Recorded
from models.quality.rule_families import PATIENCE
from models.report.markdown import table
from serve.rules import PatienceRule

MODELS = (SST2_MPNET, SST2_MINILM, MRPC_MPNET)

_ABOUT = (
    "PABEE's theorem is for two labels, with exits that err independently of each other: the "
    "exits before the last are wrong with probability q, the last one with p. Then patience t of "
    "n exits has fewer errors than the last exit if n - t < (1 / 2q)^t p / q - p. The paper's "
    "example, n = 12, q = 0.2 and p = 0.1, needs t >= 4. Below q and p are a model's own, and so "
    "is what patience does. Exits of one model do not err independently: the last two columns show "
    "how often t + 1 exits in a row are all wrong, and how often they would be if they did."
)
_PLENTY = 1000
_HEAD = [
    "patience t",
    "n - t",
    "(1 / 2q)^t p / q - p",
    "better by the theorem",
    "mean layers",
    "accuracy less full depth's, points",
    "t + 1 exits wrong %",
    "if independent %",
]


class Patience(NamedTuple):
    """One patience.

    Attributes:
        patience: t.
        left: the condition's left side, n - t.
        right: its right side.
        layers: mean.
        gained: accuracy less full depth's.
        wrong: share of texts that t + 1 exits in a row have wrong, on average over such runs of
            exits before the last.
        wrong_if_independent: the same, if exits erred independently.
    """

    patience: int
    left: int
    right: float
    layers: float
    gained: Sampled
    wrong: float
    wrong_if_independent: float

    @property
    def promised(self) -> bool:
        """Whether the condition holds."""
        return self.left < self.right

    @property
    def cells(self) -> list[object]:
        """The cells of the table."""
        return [
            self.patience,
            self.left,
            f"{self.right:.1f}" if self.right < _PLENTY else f"above {_PLENTY}",
            "yes" if self.promised else "no",
            f"{self.layers:.2f}",
            self.gained.text(signed=True),
            f"{100 * self.wrong:.2f}",
            f"{100 * self.wrong_if_independent:.3f}",
        ]


def write(context: Context) -> str:
    """Return a table for each model that is there."""
    blocks = [_ABOUT]
    for model in MODELS:
        if model.is_trained(context):
            blocks += _of_model(model, model.recorded(context))
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
            count - t,
            right_side(t, q, p),
            float(point.layers.mean()),
            tried.of(point) - tried.full,
            _in_a_row(wrong[:-1], t + 1),
            _independent(wrong[:-1], t + 1),
        )
        for t, point in zip(each, tried.points[PATIENCE], strict=True)
    ]


def _of_model(model: ZooModel, recorded: Recorded) -> list[str]:
    found, right = patiences(recorded), recorded.right
    assert right is not None
    q, p = float((~right[:-1]).mean()), float((~right[-1]).mean())
    promised = [each.patience for each in found if each.promised]
    better = [each.patience for each in found if each.gained.value > 0]
    shown = [each.patience for each in found if each.gained.shown and each.gained.value > 0]
    words = (
        f"**{model.name}**: n = {len(right)}, q = {q:.3f}, p = {p:.3f}. Fewer errors than the last "
        f"exit: by the theorem with {_listed(promised)}; measured with {_listed(better)}; with an "
        f"interval above 0 with {_listed(shown)}."
    )
    return [words, table(_HEAD, [each.cells for each in found])]


def _listed(numbers: list[int]) -> str:
    return f"patience {', '.join(map(str, numbers))}" if numbers else "no patience"


def _in_a_row(wrong: NDArray[np.bool_], length: int) -> float:
    starts = range(len(wrong) - length + 1)
    return float(np.mean([wrong[start : start + length].all(axis=0).mean() for start in starts]))


def _independent(wrong: NDArray[np.bool_], length: int) -> float:
    rates, starts = wrong.mean(axis=1), range(len(wrong) - length + 1)
    return float(np.mean([rates[start : start + length].prod() for start in starts]))
