"""Which rows of a wave leave at this exit: every row judged on its own logits by its own rule."""

from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from serve.columns import KINDS, RuleColumns
from serve.rules import ConfidenceRule, EntropyRule, LayerRule, PatienceRule, Rule
from serve.signals import confidence, entropy

Temperature: TypeAlias = float | NDArray[np.float32]  # (rows,) where they are at different exits
Opinion: TypeAlias = tuple[NDArray[np.bool_], NDArray[np.float32]]  # (rows,) confident, signal


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


class Said(NamedTuple):
    """What an exit head says of the rows of a wave.

    Attributes:
        logits: (rows, labels); of token classification (rows, tokens, labels).
        uncertainty: (rows,) the heads' own predicted error, if they give it.
        counted: (rows, tokens) of token classification: which tokens count; padding and
            special tokens do not.
    """

    logits: NDArray[np.float32]
    uncertainty: NDArray[np.float32] | None = None
    counted: NDArray[np.bool_] | None = None


class Given(NamedTuple):
    """The answers that the rows would leave with now, where they are not this exit's.

    Attributes:
        logits: (rows, labels) likewise.
        exit_index: (rows,) whose head gives each answer, counted from 0.
        label: (rows,) the answer's label; -1 for the one of the largest logit.
    """

    logits: NDArray[np.float32]
    exit_index: NDArray[np.int64]
    label: NDArray[np.int64]


class Verdict(NamedTuple):
    """What has been judged of the rows.

    Attributes:
        reasons: (rows,) of `Reason`: why each leaves, or that it stays.
        signals: (rows,) its rule's signal, NaN where the rule has none.
        given: the answers, if any rule in the wave gives another than this exit's logits; a
            row that has to leave later, at its deadline, leaves with these too.
    """

    reasons: NDArray[np.int8]
    signals: NDArray[np.float32]
    given: Given | None = None


def judge(
    columns: RuleColumns,
    said: Said,
    exit_index: int | NDArray[np.int64],
    num_exits: int,
    temperature: Temperature = 1.0,
) -> Verdict:
    """Judge rows at an exit, and advance the rules' state in `columns`.

    A NaN signal is never confident: such a row goes on to its last permitted exit.

    Args:
        columns: the rows' rules; `label` and `streak` are updated in place.
        said: by this exit's head.
        exit_index: which exit, counted from 0; (rows,) where rows are at different ones.
        num_exits: how many exits the model has.
        temperature: of this exit, for confidence; (rows,) likewise.
    """
    logits = said.logits
    confident, signals = _opinions(columns, logits, temperature)
    reasons = np.zeros(len(logits), np.int8)
    if columns.bounded:
        confident &= (columns.first <= exit_index) & (exit_index <= columns.last)
        reasons[columns.last == exit_index] = Reason.MAX_LAYER
    if np.count_nonzero(confident):
        reasons[confident] = _REASONS[columns.kind[confident]]
    if isinstance(exit_index, int):
        if exit_index == num_exits - 1:
            reasons[:] = Reason.FINAL
    else:
        reasons[exit_index == num_exits - 1] = Reason.FINAL
    return Verdict(reasons, signals)


def _opinions(
    columns: RuleColumns, logits: NDArray[np.float32], temperature: Temperature
) -> Opinion:
    if len(columns.kinds) == 1:
        return _CRITERIA[columns.kinds[0]](columns, logits, temperature)
    confident = np.empty(len(logits), np.bool_)
    signals = np.empty(len(logits), np.float32)
    for kind in columns.kinds:
        rows = np.flatnonzero(columns.kind == kind)
        part = columns.take(rows)
        own = temperature[rows] if isinstance(temperature, np.ndarray) else temperature
        confident[rows], signals[rows] = _CRITERIA[kind](part, logits[rows], own)
        columns.label[rows], columns.streak[rows] = part.label, part.streak
    return confident, signals


def _by_entropy(
    columns: RuleColumns, logits: NDArray[np.float32], _temperature: Temperature
) -> Opinion:
    signal = entropy(logits)
    return signal < columns.threshold, signal


def _by_confidence(
    columns: RuleColumns, logits: NDArray[np.float32], temperature: Temperature
) -> Opinion:
    signal = confidence(logits, temperature)
    return signal >= columns.threshold, signal


def _by_patience(
    columns: RuleColumns, logits: NDArray[np.float32], _temperature: Temperature
) -> Opinion:
    # The first of the largest logits; -1 where there is no number.
    unknown = np.isnan(entropy(logits))
    label = np.where(unknown, -1, logits.argmax(axis=1)).astype(np.int32)
    agrees = (label == columns.label) & (label >= 0)
    streak = np.where(agrees, columns.streak + 1, 0)
    columns.label, columns.streak = label, streak
    return streak >= columns.patience, streak.astype(np.float32)


def _by_layer(
    _columns: RuleColumns, logits: NDArray[np.float32], _temperature: Temperature
) -> Opinion:
    return np.ones(len(logits), np.bool_), np.full(len(logits), np.nan, np.float32)


def _never(
    _columns: RuleColumns, logits: NDArray[np.float32], _temperature: Temperature
) -> Opinion:
    return np.zeros(len(logits), np.bool_), np.full(len(logits), np.nan, np.float32)


_Criterion: TypeAlias = Callable[[RuleColumns, NDArray[np.float32], Temperature], Opinion]

_BY_RULE: dict[type[Rule], tuple[_Criterion, Reason]] = {
    EntropyRule: (_by_entropy, Reason.CONFIDENT),
    ConfidenceRule: (_by_confidence, Reason.CONFIDENT),
    PatienceRule: (_by_patience, Reason.PATIENCE),
    LayerRule: (_by_layer, Reason.LAYER),
}
# As `RuleColumns.kind` counts them: the last is of rules that never let a row leave.
_CRITERIA = [*(_BY_RULE[kind][0] for kind in KINDS), _never]
_REASONS = np.array([*(_BY_RULE[kind][1] for kind in KINDS), Reason.STAYS], np.int8)
