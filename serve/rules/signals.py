"""Confidence signals read off exit logits, vectorised over rows and computed in float32.

Infinite logits make numpy warn of invalid values, unless `np.errstate` says otherwise. The
engine's thread does so once: it would take a tenth of the time of a call here.

A multi-label model's labels and a tagger's tokens are parts of a row. Each part has a distribution
of its own (of a label, that between yes and no) and a signal of its own; `reduced` makes them the
row's one signal, which padding cannot touch, to the last bit.
"""

import math
from functools import lru_cache
from typing import Annotated, TypeAlias

import numpy as np
from numpy.typing import NDArray

from serve.rules.traits import Task

# Axes before the labels' are rows: (rows, tokens, labels) gives signals (rows, tokens).
Logits: TypeAlias = Annotated[NDArray[np.floating], "(rows, labels)"]
Signal: TypeAlias = Annotated[NDArray[np.float32], "(rows,)"]

_FLOOR = np.array(-200, np.float32)  # exp of it is 0 in float32


def log_softmax(logits: Logits) -> NDArray[np.float32]:
    """Return log-probabilities in float32, shifted by the row maximum so that nothing overflows.

    A row with NaN, or with +inf, comes back as NaN throughout.
    """
    values = np.asarray(logits, dtype=np.float32)
    shifted = values - np.maximum.reduce(values, axis=-1, keepdims=True)
    total = np.add.reduce(np.exp(shifted), axis=-1, keepdims=True)
    log_p: NDArray[np.float32] = shifted - np.log(total)
    return log_p


def meaningless(logits: Logits) -> NDArray[np.bool_]:
    """Tell of each row whether it has no distribution: NaN or +inf in it, or nothing but -inf."""
    finite: NDArray[np.bool_] = np.isfinite(np.maximum.reduce(logits, axis=-1))
    return ~finite


def softmax(logits: Logits) -> NDArray[np.float32]:
    """Return probabilities in float32; each row adds up to 1, or is NaN throughout."""
    p: NDArray[np.float32] = np.exp(log_softmax(logits))
    return p


def entropy(logits: Logits) -> Signal:
    """Return each row's softmax entropy in nats, from 0 (certain) to ln(labels).

    Computed from log-softmax, so large logits neither overflow nor give 0 * -inf
    (both forms in circulation do: DeeBERT issue 17 and its fix). NaN stays NaN.

    Args:
        logits: (rows, labels), any float type; computed in float32.
    """
    values = np.asarray(logits, dtype=np.float32)
    # From log(sum) - sum(e * x) / sum, with x shifted to at most 0: nothing is subtracted that
    # is above 0, so the result is not below it. The floor changes no probability, keeps 0 * -inf
    # out, and lets NaN through.
    largest = np.maximum.reduce(values, axis=-1, keepdims=True)
    shifted = np.maximum(values - largest, _FLOOR)
    e = np.exp(shifted)
    total = np.add.reduce(e, axis=-1)
    signal = np.log(total) - np.add.reduce(e * shifted, axis=-1) / total
    bounded: Signal = np.minimum(signal, _largest_entropy(values.shape[-1]))
    return bounded


@lru_cache(maxsize=64)
def _largest_entropy(num_labels: int) -> NDArray[np.float32]:
    return np.array(math.log(num_labels), np.float32)


def confidence(logits: Logits, temperature: float | NDArray[np.floating] = 1.0) -> Signal:
    """Return each row's largest softmax probability at a temperature. NaN stays NaN.

    Per-exit temperatures make one threshold mean the same at every depth
    ("The Right Tool for the Job", Schwartz et al. 2020).

    Args:
        logits: (rows, labels), any float type; computed in float32.
        temperature: positive; a scalar or (rows,).
    """
    scale = np.asarray(temperature, dtype=np.float32)
    top: Signal = softmax(np.asarray(logits, dtype=np.float32) / scale[..., None]).max(axis=-1)
    return top


def normalized_entropy(logits: Logits) -> Signal:
    """Return each row's entropy as a share of ln(labels), from 0 to 1. NaN stays NaN.

    FastBERT's and PCEE-BERT's measure. Of a single label, whose entropy is 0, it is 0.
    """
    largest = _largest_entropy(logits.shape[-1])
    if not largest:
        return entropy(logits)
    share: Signal = entropy(logits) / largest
    return share


def margin(logits: Logits) -> Signal:
    """Return by how much each row's top probability exceeds the second. NaN stays NaN.

    With a single label there is no second, and the top probability comes back.
    """
    p = softmax(logits)
    if p.shape[-1] == 1:
        return p[..., 0]
    p.partition(p.shape[-1] - 2, axis=-1)
    gap: Signal = p[..., -1] - p[..., -2]
    return gap


def sigmoid(logits: Logits) -> NDArray[np.float32]:
    """Return the logistic function in float32: of multi-label models, each label's probability.

    Args:
        logits: an array of any shape; infinite ones give 0 and 1, NaN stays NaN.
    """
    bounded = np.clip(np.asarray(logits, dtype=np.float32), _FLOOR, -_FLOOR)
    e = np.exp(-np.abs(bounded))
    p: NDArray[np.float32] = np.where(bounded < 0, e, np.float32(1)) / (1 + e)
    return p


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
