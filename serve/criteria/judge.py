"""Which rows of a batch leave at this exit: every row judged on its own logits by its own rule."""

from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from serve.criteria.agreement import by_confident_patience, by_patience, by_voting
from serve.criteria.answers import answers
from serve.criteria.certainty import (
    by_classes,
    by_confidence,
    by_entropy,
    by_learned,
    by_margin,
    by_normalized_entropy,
)
from serve.criteria.head_output import (
    EVERY,
    ExitIndex,
    HeadOutput,
    Opinion,
    Prediction,
    Rows,
    Temperature,
)
from serve.criteria.rule_state import KINDS, NEVER, RuleState
from serve.rules import (
    ClassesRule,
    ConfidenceRule,
    ConfidentPatienceRule,
    EntropyRule,
    LayerRule,
    LearnedRule,
    MarginRule,
    NormalizedEntropyRule,
    PatienceRule,
    Rule,
    VotingRule,
)

__all__ = [
    "Decision",
    "HeadOutput",
    "Prediction",
    "Reason",
    "Temperature",
    "judge",
    "judge_alone",
    "unheard_reasons",
]


class Reason(IntEnum):
    """Why a row left."""

    STAYS = 0
    CONFIDENT = 1
    PATIENCE = 2
    LAYER = 3
    MAX_LAYER = 4
    FINAL = 5
    DEADLINE = 6
    VOTES = 7

    @property
    def label(self) -> str:
        """The reason's name in JSON and metrics."""
        return self.name.lower()


class Decision(NamedTuple):
    """What has been judged of the rows.

    Attributes:
        reasons: (rows,) of `Reason`: why each leaves, or that it stays.
        signals: (rows,) its rule's signal, NaN where the rule has none.
        given: the answers, if any rule in the batch gives another than this exit's logits; a
            row that has to leave later, at its deadline, leaves with these too.
    """

    reasons: NDArray[np.int8]
    signals: NDArray[np.float32]
    given: Prediction | None = None


def judge(
    columns: RuleState,
    said: HeadOutput,
    exit_index: ExitIndex,
    num_exits: int,
    temperature: Temperature = 1.0,
) -> Decision:
    """Judge rows at an exit, and advance the rules' state in `columns`.

    A NaN signal is never confident: such a row goes on to its last permitted exit.

    Args:
        columns: the rows' rules; `label`, `streak` and `carry` are updated in place.
        said: by this exit's head.
        exit_index: which exit, counted from 0; (rows,) where rows are at different ones.
        num_exits: how many exits the model has.
        temperature: of this exit, for confidence; (rows,) likewise.
    """
    confident, signals = _opinions(columns, said, exit_index, temperature)
    if not columns.carry and isinstance(exit_index, int) and exit_index == num_exits - 1:
        return Decision(np.full(len(signals), Reason.FINAL, np.int8), signals)
    reasons = np.zeros(len(said.logits), np.int8)
    if columns.bounded:
        confident = confident & (columns.first <= exit_index)
        reasons[columns.last <= exit_index] = _MAX_LAYER
    if np.count_nonzero(confident):
        one = len(columns.kinds) == 1
        kind = columns.kinds[0] if one else columns.kind[confident]
        reasons[confident] = _REASONS[kind]
    if isinstance(exit_index, int):
        if exit_index == num_exits - 1:
            reasons[:] = _FINAL
    else:
        reasons[exit_index == num_exits - 1] = _FINAL
    given = answers(columns, said, confident, exit_index) if columns.carry else None
    return Decision(reasons, signals, given)


def judge_alone(
    columns: RuleState, said: HeadOutput, exit_index: int, num_exits: int, temperature: float
) -> tuple[Reason, float]:
    """Judge a row that is alone as `judge` does, with fewer arrays; return reason and signal.

    Args:
        columns: the row's; it leaves with this exit's logits, whatever its rule.
        said: by this exit's head.
        exit_index: as for `judge`, and so are the others.
        num_exits: likewise.
        temperature: likewise.
    """
    opinions, signals = _opinions(columns, said, exit_index, temperature)
    return _reason(columns, opinions.tolist()[0], exit_index, num_exits), signals.tolist()[0]


def unheard_reasons(columns: RuleState, num_exits: int) -> tuple[Reason | None, ...]:
    """Return why a row leaves each exit, or that it stays, if that is so whatever the heads say.

    Such rules have no signal. None where it is not so.

    Args:
        columns: the row's.
        num_exits: how many exits the model has.
    """
    confident = _SURE_UNHEARD.get(int(columns.kind[0]))
    if confident is None:
        return (None,) * num_exits
    return tuple(_reason(columns, confident, index, num_exits) for index in range(num_exits))


def _reason(columns: RuleState, confident: bool, exit_index: int, num_exits: int) -> Reason:
    """Return why a row that is alone leaves an exit, or that it stays."""
    if exit_index == num_exits - 1:
        return Reason.FINAL
    if confident and columns.first[0] <= exit_index:
        # Not from `kinds`, which may hold those of rows that have left.
        return _REASON_OF[int(columns.kind[0])]
    return Reason.MAX_LAYER if exit_index >= columns.last[0] else Reason.STAYS


def _opinions(
    columns: RuleState, said: HeadOutput, exit_index: ExitIndex, temperature: Temperature
) -> Opinion:
    if len(columns.kinds) == 1:
        return _CRITERIA[columns.kinds[0]](columns, EVERY, said, exit_index, temperature)
    confident = np.empty(len(said.logits), np.bool_)
    signals = np.empty(len(said.logits), np.float32)
    for kind in columns.kinds:
        rows = np.flatnonzero(columns.kind == kind)
        # Rows may have left since: the last of a kind too.
        if len(rows):
            confident[rows], signals[rows] = _CRITERIA[kind](
                columns,
                rows,
                said.of(rows),
                exit_index[rows] if isinstance(exit_index, np.ndarray) else exit_index,
                temperature[rows] if isinstance(temperature, np.ndarray) else temperature,
            )
    return confident, signals


def _by_layer(
    columns: RuleState,
    rows: Rows,
    said: HeadOutput,
    exit_index: ExitIndex,
    temperature: Temperature,
) -> Opinion:
    num_rows = len(said.logits)
    return _SURE[:num_rows], _NO_SIGNAL[:num_rows]


def _never(
    columns: RuleState,
    rows: Rows,
    said: HeadOutput,
    exit_index: ExitIndex,
    temperature: Temperature,
) -> Opinion:
    num_rows = len(said.logits)
    return _UNSURE[:num_rows], _NO_SIGNAL[:num_rows]


# One number each, as often as any batch has rows; not to be written to.
_MANY = 1 << 30
_SURE, _UNSURE = np.broadcast_to(np.True_, _MANY), np.broadcast_to(np.False_, _MANY)
_NO_SIGNAL = np.broadcast_to(np.float32(np.nan), _MANY)
_MAX_LAYER, _FINAL = np.int8(Reason.MAX_LAYER), np.int8(Reason.FINAL)  # quicker than members

_Criterion: TypeAlias = Callable[[RuleState, Rows, HeadOutput, ExitIndex, Temperature], Opinion]

_BY_RULE: dict[type[Rule], tuple[_Criterion, Reason]] = {
    EntropyRule: (by_entropy, Reason.CONFIDENT),
    NormalizedEntropyRule: (by_normalized_entropy, Reason.CONFIDENT),
    ConfidenceRule: (by_confidence, Reason.CONFIDENT),
    MarginRule: (by_margin, Reason.CONFIDENT),
    PatienceRule: (by_patience, Reason.PATIENCE),
    ConfidentPatienceRule: (by_confident_patience, Reason.PATIENCE),
    VotingRule: (by_voting, Reason.VOTES),
    LearnedRule: (by_learned, Reason.CONFIDENT),
    ClassesRule: (by_classes, Reason.CONFIDENT),
    LayerRule: (_by_layer, Reason.LAYER),
}
# As `RuleState.kind` counts them: the last is of rules that never let a row leave.
_CRITERIA = [*(_BY_RULE[kind][0] for kind in KINDS), _never]
# Whether rules are confident that do not ask what the head says, and have no signal.
_SURE_UNHEARD = {KINDS.index(LayerRule): True, NEVER: False}
_REASON_OF = [*(_BY_RULE[kind][1] for kind in KINDS), Reason.STAYS]
_REASONS = np.array(_REASON_OF, np.int8)
