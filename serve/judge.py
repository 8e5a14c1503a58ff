"""Which rows of a wave leave at this exit: every row judged on its own logits by its own rule."""

from collections.abc import Callable
from enum import IntEnum
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from serve.columns import KINDS, RuleColumns
from serve.rules import ConfidenceRule, EntropyRule, LayerRule, PatienceRule, Rule
from serve.signals import confidence, entropy

Rows: TypeAlias = NDArray[np.intp]  # (n,) indices into a wave
Opinion: TypeAlias = tuple[NDArray[np.bool_], NDArray[np.float32]]  # confident, signal: (n,)


class Reason(IntEnum):
    """Why a row left."""

    STAYS = 0
    CONFIDENT = 1
    PATIENCE = 2
    LAYER = 3
    MAX_LAYER = 4
    FINAL = 5
    DEADLINE = 6

    @property
    def label(self) -> str:
        """The reason's name in JSON and metrics."""
        return self.name.lower()


class Verdict(NamedTuple):
    """Each row's reason to leave, and its rule's signal (NaN where the rule has none)."""

    reasons: NDArray[np.int8]  # (rows,) of Reason
    signals: NDArray[np.float32]  # (rows,)


class Reading:
    """What the heads of one exit say, computed once for all rules that ask.

    Attributes:
        logits: (rows, labels).
        temperature: of this exit.
    """

    def __init__(self, logits: NDArray[np.float32], temperature: float) -> None:
        self.logits = logits
        self.temperature = temperature

    @cached_property
    def entropy(self) -> NDArray[np.float32]:
        """(rows,) in nats; NaN where the logits are."""
        return entropy(self.logits)

    @cached_property
    def confidence(self) -> NDArray[np.float32]:
        """(rows,) top probability at the exit's temperature; NaN where the logits are."""
        return confidence(self.logits, self.temperature)

    @cached_property
    def label(self) -> NDArray[np.int32]:
        """(rows,) the first of the largest logits; -1 where the logits are NaN."""
        return np.where(np.isnan(self.entropy), -1, self.logits.argmax(axis=1)).astype(np.int32)


def judge(
    columns: RuleColumns,
    logits: NDArray[np.float32],
    exit_index: int,
    num_exits: int,
    temperature: float = 1.0,
) -> Verdict:
    """Judge a wave at an exit, and advance the rules' state in `columns`.

    A NaN signal is never confident: such a row goes on to its last permitted exit.

    Args:
        columns: the rows' rules; `label` and `streak` are updated in place.
        logits: (rows, labels) of this exit.
        exit_index: which exit, counted from 0.
        num_exits: how many exits the model has.
        temperature: of this exit, for confidence.
    """
    confident, signals = _opinions(columns, Reading(logits, temperature))
    reasons = np.full(len(logits), Reason.STAYS, np.int8)
    if exit_index == num_exits - 1:
        reasons[:] = Reason.FINAL
        return Verdict(reasons, signals)
    reasons[columns.last == exit_index] = Reason.MAX_LAYER
    free = confident & (columns.first <= exit_index) & (exit_index <= columns.last)
    reasons[free] = _REASONS[columns.kind[free]]
    return Verdict(reasons, signals)


def _opinions(columns: RuleColumns, reading: Reading) -> Opinion:
    num_rows = len(columns.kind)
    confident = np.zeros(num_rows, np.bool_)
    signals = np.full(num_rows, np.nan, np.float32)
    for kind, (criterion, _) in enumerate(_CRITERIA):
        rows = np.flatnonzero(columns.kind == kind)
        if len(rows):
            confident[rows], signals[rows] = criterion(columns, reading, rows)
    return confident, signals


def _by_entropy(columns: RuleColumns, reading: Reading, rows: Rows) -> Opinion:
    signal = reading.entropy[rows]
    return signal < columns.threshold[rows], signal


def _by_confidence(columns: RuleColumns, reading: Reading, rows: Rows) -> Opinion:
    signal = reading.confidence[rows]
    return signal >= columns.threshold[rows], signal


def _by_patience(columns: RuleColumns, reading: Reading, rows: Rows) -> Opinion:
    label = reading.label[rows]
    agrees = (label == columns.label[rows]) & (label >= 0)
    streak = np.where(agrees, columns.streak[rows] + 1, 0)
    columns.label[rows], columns.streak[rows] = label, streak
    return streak >= columns.patience[rows], streak.astype(np.float32)


def _by_layer(_columns: RuleColumns, _reading: Reading, rows: Rows) -> Opinion:
    return np.ones(len(rows), np.bool_), np.full(len(rows), np.nan, np.float32)


_BY_RULE: dict[type[Rule], tuple[Callable[..., Opinion], Reason]] = {
    EntropyRule: (_by_entropy, Reason.CONFIDENT),
    ConfidenceRule: (_by_confidence, Reason.CONFIDENT),
    PatienceRule: (_by_patience, Reason.PATIENCE),
    LayerRule: (_by_layer, Reason.LAYER),
}
_CRITERIA = [_BY_RULE[kind] for kind in KINDS]
_REASONS = np.array([reason for _, reason in _CRITERIA], np.int8)
