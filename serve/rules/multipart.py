"""Rows of several parts: a multi-label model's labels, a tagger's tokens.

Each part has a distribution of its own (of a label, that between yes and no) and a signal of its
own; `reduced` makes them the row's one signal, which padding cannot touch, to the last bit.
"""

import numpy as np
from numpy.typing import NDArray

from serve.rules.signals import meaningless, sigmoid, softmax
from serve.rules.traits import Task

_TOO_FAR = np.float32(200)  # exp of its negative is 0 in float32
# The largest float32 below 1; it keeps log(1 - p) finite.
_NEXT_TO_ONE = np.float32(1 - 2**-24)
_TINY = np.finfo(np.float32).tiny


def distributions(task: Task, logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return logits (rows, parts, options) of which each part has a softmax.

    For multi-label models each label has two options, yes and no; an infinite logit is certain.

    Args:
        task: multi_label or token.
        logits: (rows, labels) or (rows, tokens, labels).
    """
    if task == "token":
        return logits
    yes = np.clip(logits, -_TOO_FAR, _TOO_FAR)
    return np.stack([yes, np.zeros_like(yes)], axis=-1)


def reduced(
    signals: NDArray[np.float32],
    counted: NDArray[np.bool_] | None,
    quantile: NDArray[np.float64] | None,
    sure_is_high: bool,
) -> NDArray[np.float32]:
    """Return (rows,) one signal for each row's parts; NaN if any that counts is NaN, or none does.

    Args:
        signals: (rows, parts).
        counted: (rows, parts) which count; None for all.
        quantile: (rows,) the share of parts that are to be at least as sure as the signal says:
            1 for that of the least sure; NaN for the mean. None for 1 throughout.
        sure_is_high: as of confidence; else low signals are the sure ones, as of entropy.
    """
    if counted is None:
        counted = np.ones(signals.shape, np.bool_)
    if quantile is None:
        quantile = np.ones(len(signals))
    doubt = -signals if sure_is_high else signals
    number = np.count_nonzero(counted, axis=1)
    of_mean = np.isnan(quantile)
    doubts = np.empty(len(signals), np.float32)
    if of_mean.any():
        doubts[of_mean] = _mean(doubt[of_mean], counted[of_mean], number[of_mean])
    if not of_mean.all():
        rest = ~of_mean
        doubts[rest] = _quantile(doubt[rest], counted[rest], number[rest], quantile[rest])
    doubts[(np.isnan(signals) & counted).any(axis=1) | (number == 0)] = np.nan
    return -doubts if sure_is_high else doubts


def decisions(task: Task, logits: NDArray[np.float32]) -> NDArray[np.int32]:
    """Return what rows' logits decide; the first of the largest logits; -1 where there is none.

    Args:
        task: single_label: (rows,) label ids; multi_label: (rows, labels) 1 or 0, is the
            probability above 1/2; token: (rows, tokens) label ids.
        logits: (rows, labels) or (rows, tokens, labels).
    """
    if task == "multi_label":
        return np.where(np.isnan(logits), -1, logits > 0).astype(np.int32)
    return np.where(meaningless(logits), -1, logits.argmax(axis=-1)).astype(np.int32)


def probabilities(task: Task, logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return each label's probability, shaped as the logits."""
    return sigmoid(logits) if task == "multi_label" else softmax(logits)


def logits_of(task: Task, p: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return finite logits that have these probabilities, as near as float32 comes to 0 and 1."""
    log_p: NDArray[np.float32] = np.log(np.maximum(p, _TINY))
    if task == "multi_label":
        log_p -= np.log1p(-np.minimum(p, _NEXT_TO_ONE))
    return log_p


def _mean(
    doubt: NDArray[np.float32], counted: NDArray[np.bool_], number: NDArray[np.intp]
) -> NDArray[np.float64]:
    # One after another: numpy's own sum groups by the padded width, which must not matter.
    sums = np.add.accumulate(np.where(counted, doubt, 0), axis=1, dtype=np.float64)
    mean: NDArray[np.float64] = sums[:, -1] / np.maximum(number, 1)
    return mean


def _quantile(
    doubt: NDArray[np.float32],
    counted: NDArray[np.bool_],
    number: NDArray[np.intp],
    quantile: NDArray[np.float64],
) -> NDArray[np.float32]:
    surest_first = np.sort(np.where(counted, doubt, np.inf), axis=1)
    # 0.07 of 100 parts are 7, though the product of the two floats is a little more.
    rank = np.ceil(quantile * number - 1e-9).astype(np.intp)
    chosen = np.maximum(rank, 1) - 1
    of_rank: NDArray[np.float32] = surest_first[np.arange(len(doubt)), chosen]
    return of_rank
