"""Confidence signals read off exit logits, vectorised over rows and computed in float32.

Infinite logits make numpy warn of invalid values, unless `np.errstate` says otherwise. The
engine's thread does so once: it would take a tenth of the time of a call here.
"""

import math
from functools import lru_cache
from typing import Annotated, TypeAlias

import numpy as np
from numpy.typing import NDArray

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
