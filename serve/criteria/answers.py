"""What rows would leave with, where a rule answers otherwise than with this exit's logits."""

import numpy as np
from numpy.typing import NDArray

from serve.criteria.agreement import tied
from serve.criteria.carry import BEST_EXIT, BEST_LOGITS, HEADS, TOTAL, VOTES, fit
from serve.criteria.head_output import ExitIndex, HeadOutput, Prediction
from serve.criteria.multipart import logits_of
from serve.criteria.rule_state import KINDS, RuleState
from serve.rules import VotingRule

_VOTING = KINDS.index(VotingRule)


def answers(
    columns: RuleState, said: HeadOutput, confident: NDArray[np.bool_], exit_index: ExitIndex
) -> Prediction | None:
    """Return the answers that the rows would leave with now; None if all are this exit's own.

    Args:
        columns: advanced to this exit.
        said: by its head.
        confident: (rows,) which leave here of their own accord.
        exit_index: which exit; (rows,) where rows are at different ones.
    """
    carry, num_rows, width = columns.carry, *said.logits.shape[:2]
    if not (VOTES in carry or BEST_EXIT in carry or TOTAL in carry):
        return None
    exits = np.array(np.broadcast_to(exit_index, num_rows), np.int64)
    given = Prediction(said.logits.copy(), exits, np.full(num_rows, -1, np.int64))
    if VOTES in carry:
        _elect(columns, given)
    if BEST_EXIT in carry:
        best = np.flatnonzero(~confident & (carry[BEST_EXIT] >= 0))
        given.logits[best] = fit(carry[BEST_LOGITS][best], width, np.nan)
        given.exit_index[best] = carry[BEST_EXIT][best]
    if TOTAL in carry:
        mixed = np.flatnonzero(carry[HEADS] > 0)
        heads = carry[HEADS][mixed].reshape(-1, *(1,) * (said.logits.ndim - 1))
        mean = (fit(carry[TOTAL][mixed], width, 0) / heads).astype(np.float32)
        given.logits[mixed] = logits_of(columns.task, mean)
    return given


def _elect(columns: RuleState, given: Prediction) -> None:
    """Let the majority name the label; in a tie this exit's own stands."""
    rows = np.flatnonzero(columns.kind == _VOTING)
    votes = columns.carry[VOTES][rows]
    given.label[rows] = np.where(tied(votes), -1, votes.argmax(axis=1))
