"""Rules that look at several exits in a row; they keep each row's progress in its columns."""

import numpy as np
from numpy.typing import NDArray

from serve.criteria.carry import (
    BEFORE,
    ENSEMBLE,
    HEADS,
    NO_ENSEMBLE,
    OF_RUN,
    SCALE,
    SHARE,
    TOTAL,
    VALUE,
    VOTES,
    WEIGHTS,
    fit,
)
from serve.criteria.certainty import normalized
from serve.criteria.head_output import ExitIndex, HeadOutput, Opinion, Rows, Temperature
from serve.criteria.multipart import decisions, probabilities
from serve.criteria.rule_state import RuleState


def by_patience(
    columns: RuleState,
    rows: Rows,
    said: HeadOutput,
    exit_index: ExitIndex,
    temperature: Temperature,
) -> Opinion:
    """Often enough in a row the same answer as at the exit before."""
    agrees = _AGREEING[columns.task](columns, rows, said)
    streak = np.where(agrees, columns.streak[rows] + 1, 0)
    columns.streak[rows] = streak
    return streak >= columns.patience[rows], streak.astype(np.float32)


def by_confident_patience(
    columns: RuleState,
    rows: Rows,
    said: HeadOutput,
    exit_index: ExitIndex,
    temperature: Temperature,
) -> Opinion:
    """Often enough in a row a normalized entropy below the threshold."""
    signal = normalized(columns, rows, said)
    confident = signal < columns.threshold_at(rows, exit_index)
    streak = np.where(confident, columns.streak[rows] + 1, 0)
    columns.streak[rows] = streak
    if TOTAL in columns.carry:
        _add_up(columns, rows, said, known=~np.isnan(signal), confident=confident)
    return streak >= columns.patience[rows], streak.astype(np.float32)


def by_voting(
    columns: RuleState,
    rows: Rows,
    said: HeadOutput,
    exit_index: ExitIndex,
    temperature: Temperature,
) -> Opinion:
    """Enough of the exits so far for one label, and no tie."""
    carry = columns.carry
    label = decisions("single_label", said.logits)
    votes = carry[VOTES][rows]
    voting = np.flatnonzero(label >= 0)
    votes[voting, label[voting]] += columns.carried_at(WEIGHTS, rows, exit_index)[voting]
    carry[VOTES][rows] = votes
    signal = votes.max(axis=1) / columns.carried_at(SCALE, rows, exit_index)
    # A row without a number here has no scores to leave with.
    confident = (signal >= carry[SHARE][rows]) & ~tied(votes) & (label >= 0)
    return confident, signal.astype(np.float32)


def tied(votes: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Tell of each row of votes (rows, labels) whether several labels have the most."""
    leading = votes == votes.max(axis=1, keepdims=True)
    several: NDArray[np.bool_] = np.count_nonzero(leading, axis=1) > 1
    return several


def _same_label(columns: RuleState, rows: Rows, said: HeadOutput) -> NDArray[np.bool_]:
    label = decisions("single_label", said.logits)
    agrees: NDArray[np.bool_] = (label == columns.label[rows]) & (label >= 0)
    columns.label[rows] = label
    return agrees


def _same_parts(columns: RuleState, rows: Rows, said: HeadOutput) -> NDArray[np.bool_]:
    """All labels, or all tokens that count, are decided as at the exit before."""
    carry, now = columns.carry, decisions(columns.task, said.logits)
    carry[BEFORE] = fit(carry[BEFORE], now.shape[1], -1)
    same: NDArray[np.bool_] = (now == carry[BEFORE][rows]) & (now >= 0)
    carry[BEFORE][rows] = now
    counted = np.ones_like(same) if said.counted is None else said.counted
    agrees: NDArray[np.bool_] = np.logical_and.reduce(same | ~counted, axis=1)
    return agrees & counted.any(axis=1)


def _near_value(columns: RuleState, rows: Rows, said: HeadOutput) -> NDArray[np.bool_]:
    """The value is less than the tolerance from that of the exit before."""
    value = said.logits[:, 0]
    value = np.where(np.isfinite(value), value, np.float32(np.nan))
    near: NDArray[np.bool_] = abs(value - columns.carry[VALUE][rows]) < columns.threshold[rows]
    columns.carry[VALUE][rows] = value
    return near


_AGREEING = {
    "single_label": _same_label,
    "multi_label": _same_parts,
    "token": _same_parts,
    "regression": _near_value,
}


def _add_up(
    columns: RuleState,
    rows: Rows,
    said: HeadOutput,
    known: NDArray[np.bool_],
    confident: NDArray[np.bool_],
) -> None:
    """Add the exit's probabilities to those that the answer will be the mean of.

    An exit that was not confident begins a new run, of which it is a part: so does PCEE-BERT's
    code. One that gave no number is part of nothing.
    """
    carry, task = columns.carry, columns.task
    ensemble = carry[ENSEMBLE][rows]
    known = known & (ensemble != NO_ENSEMBLE)
    anew = (ensemble == OF_RUN) & ~confident
    p = probabilities(task, said.logits)
    carry[TOTAL] = fit(carry[TOTAL], p.shape[1], 0)
    each = (slice(None), *(None,) * (p.ndim - 1))
    total = np.where(anew[each], np.float32(0), carry[TOTAL][rows])
    carry[TOTAL][rows] = total + np.where(known[each], p, np.float32(0))
    carry[HEADS][rows] = np.where(anew, 0, carry[HEADS][rows]) + known
