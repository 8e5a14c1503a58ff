"""Which rows of a wave leave at this exit: every row judged on its own logits by its own rule."""

from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from serve.columns import KINDS, NEVER, RuleColumns
from serve.rules import ConfidenceRule, EntropyRule, LayerRule, PatienceRule, Rule
from serve.signals import confidence, entropy

Rows: TypeAlias = NDArray[np.intp] | slice  # (n,) which rows of a wave
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


class Reading(NamedTuple):
    """What the heads say of the rows.

    Attributes:
        logits: (rows, labels).
        temperature: of the exit; (rows,) where rows are at different ones.
    """

    logits: NDArray[np.float32]
    temperature: float | NDArray[np.float32]


def judge(
    columns: RuleColumns,
    logits: NDArray[np.float32],
    exit_index: int | NDArray[np.int64],
    num_exits: int,
    temperature: float | NDArray[np.float32] = 1.0,
) -> Verdict:
    """Judge rows at an exit, and advance the rules' state in `columns`.

    A NaN signal is never confident: such a row goes on to its last permitted exit.

    Args:
        columns: the rows' rules; `label` and `streak` are updated in place.
        logits: (rows, labels) of this exit.
        exit_index: which exit, counted from 0; (rows,) where rows are at different ones.
        num_exits: how many exits the model has.
        temperature: of this exit, for confidence; (rows,) likewise.
    """
    confident, signals = _opinions(columns, Reading(logits, temperature))
    if columns.bounded:
        confident &= (columns.first <= exit_index) & (exit_index <= columns.last)
    reasons = np.where(columns.last == exit_index, _MAX_LAYER, _STAYS)
    if np.count_nonzero(confident):
        reasons[confident] = _REASONS[columns.kind[confident]]
    if isinstance(exit_index, int):
        if exit_index == num_exits - 1:
            reasons[:] = Reason.FINAL
    else:
        reasons[exit_index == num_exits - 1] = Reason.FINAL
    return Verdict(reasons, signals)


def _opinions(columns: RuleColumns, reading: Reading) -> Opinion:
    if len(columns.kinds) == 1 and columns.kinds[0] != NEVER:
        return _CRITERIA[columns.kinds[0]][0](columns, reading, _ALL)
    num_rows = len(columns.kind)
    confident = np.zeros(num_rows, np.bool_)
    signals = np.full(num_rows, np.nan, np.float32)
    for kind in columns.kinds:
        if kind != NEVER:
            rows = np.flatnonzero(columns.kind == kind)
            confident[rows], signals[rows] = _CRITERIA[kind][0](columns, reading, rows)
    return confident, signals


def _by_entropy(columns: RuleColumns, reading: Reading, rows: Rows) -> Opinion:
    signal = entropy(reading.logits[rows])
    return signal < columns.threshold[rows], signal


def _by_confidence(columns: RuleColumns, reading: Reading, rows: Rows) -> Opinion:
    temperature = reading.temperature
    if isinstance(temperature, np.ndarray):
        temperature = temperature[rows]
    signal = confidence(reading.logits[rows], temperature)
    return signal >= columns.threshold[rows], signal


def _by_patience(columns: RuleColumns, reading: Reading, rows: Rows) -> Opinion:
    logits = reading.logits[rows]
    # The first of the largest logits; -1 where there is no number.
    unknown = np.isnan(entropy(logits))
    label = np.where(unknown, -1, logits.argmax(axis=1)).astype(np.int32)
    agrees = (label == columns.label[rows]) & (label >= 0)
    streak = np.where(agrees, columns.streak[rows] + 1, 0)
    columns.label[rows], columns.streak[rows] = label, streak
    return streak >= columns.patience[rows], streak.astype(np.float32)


def _by_layer(columns: RuleColumns, _reading: Reading, rows: Rows) -> Opinion:
    num_rows = len(columns.kind[rows])
    return np.ones(num_rows, np.bool_), np.full(num_rows, np.nan, np.float32)


_BY_RULE: dict[type[Rule], tuple[Callable[..., Opinion], Reason]] = {
    EntropyRule: (_by_entropy, Reason.CONFIDENT),
    ConfidenceRule: (_by_confidence, Reason.CONFIDENT),
    PatienceRule: (_by_patience, Reason.PATIENCE),
    LayerRule: (_by_layer, Reason.LAYER),
}
_CRITERIA = [_BY_RULE[kind] for kind in KINDS]
_REASONS = np.array([reason for _, reason in _CRITERIA], np.int8)
_STAYS, _MAX_LAYER = np.int8(Reason.STAYS), np.int8(Reason.MAX_LAYER)
_ALL = slice(None)
