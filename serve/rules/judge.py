"""Which rows of a batch leave at an exit: every row judged on its own logits by its own rule."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from serve.rules.criterion import EVERY_ROW, Judgement, RowsAtExit
from serve.rules.head_output import HeadOutput, Prediction
from serve.rules.reason import Reason
from serve.rules.rule_state import RuleState

# numpy takes a plain number several times faster than an enum's member.
_MAX_LAYER, _FINAL = np.int8(Reason.MAX_LAYER), np.int8(Reason.FINAL)


class Decision(NamedTuple):
    """What has been judged of the rows.

    Attributes:
        reasons: (rows,) int8 of `Reason`: why each row leaves, or that it stays.
        signals: (rows,) float32, the signal of each row's rule; NaN where the rule has none.
        prediction: what the rows would leave with, if some rule in the batch answers with
            anything but this exit's logits. A row that must leave later, at its deadline, leaves
            with it too.
    """

    reasons: NDArray[np.int8]
    signals: NDArray[np.float32]
    prediction: Prediction | None = None


def judge(
    state: RuleState,
    head: HeadOutput,
    exit_index: int,
    num_exits: int,
    temperature: float = 1.0,
) -> Decision:
    """Judge rows at an exit, counted from 0, and advance their state.

    A NaN signal is never confident: such a row goes on to its last permitted exit.
    """
    permitted = state.first <= exit_index
    rows = RowsAtExit(state.columns, EVERY_ROW, exit_index, temperature, permitted)
    if len(state.criteria) == 1:
        judged = state.criteria[0].judge(rows, head)
    else:
        judged = _judge_mixed(state, head, rows)
    if exit_index == num_exits - 1:
        reasons = np.full(len(permitted), _FINAL)
    else:
        reasons = np.where(judged.confident & permitted, _reasons(state), np.int8(0))
        if state.bounded:
            late = (state.last <= exit_index) & (reasons == 0)
            reasons[late] = _MAX_LAYER
    return Decision(reasons, judged.signal, judged.prediction)


def _reasons(state: RuleState) -> NDArray[np.int8]:
    """Return (rows,) why each row leaves that is confident; (1,) if that is one reason."""
    reasons = np.array([criterion.reason for criterion in state.criteria], np.int8)
    return reasons if len(reasons) == 1 else reasons[state.kind]


def _judge_mixed(state: RuleState, head: HeadOutput, rows: RowsAtExit) -> Judgement:
    """Judge the rows of each criterion by themselves."""
    num_rows, exit_index = len(state.kind), rows.exit_index
    confident, signal = np.empty(num_rows, np.bool_), np.empty(num_rows, np.float32)
    prediction: Prediction | None = None
    for kind, criterion in enumerate(state.criteria):
        index = np.flatnonzero(state.kind == kind)
        if not len(index):
            continue
        own_rows = RowsAtExit(
            state.columns, index, exit_index, rows.temperature, rows.permitted[index]
        )
        own = criterion.judge(own_rows, head.of(index))
        confident[index], signal[index] = own.confident, own.signal
        if own.prediction is not None:
            prediction = prediction or Prediction.at(head.logits, exit_index)
            prediction.put(index, own.prediction)
    return Judgement(confident, signal, prediction)
