"""Confidence signals read off exit logits, vectorised over rows."""

import math
from typing import Annotated, TypeAlias

import numpy as np
from numpy.typing import NDArray

Logits: TypeAlias = Annotated[NDArray[np.floating], "(rows, labels)"]
Signal: TypeAlias = Annotated[NDArray[np.float32], "(rows,)"]


_FLOOR = np.float32(-200)  # exp of it is 0 in float32


def log_softmax(logits: Logits) -> NDArray[np.float32]:
    """Return log-probabilities in float32, shifted by the row maximum so that nothing overflows.

    A row with NaN, or with +inf, comes back as NaN throughout.

    Args:
        logits: (rows, labels), any float type.
    """
    values = np.asarray(logits, dtype=np.float32)
    with np.errstate(invalid="ignore", over="ignore"):
        shifted = values - values.max(axis=-1, keepdims=True)
        log_p: NDArray[np.float32] = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
        return log_p


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
    with np.errstate(invalid="ignore", over="ignore"):
        # From log(sum) - sum(e * x) / sum, with x shifted to at most 0. The floor changes no
        # probability, keeps 0 * -inf out, and lets NaN through.
        shifted = np.maximum(values - np.maximum.reduce(values, axis=-1, keepdims=True), _FLOOR)
        e = np.exp(shifted)
        total = np.add.reduce(e, axis=-1)
        signal = np.log(total) - np.add.reduce(e * shifted, axis=-1) / total
        ceiling = np.float32(math.log(values.shape[-1]))
        # Adding 0 turns -0.0 into 0.0.
        bounded: Signal = np.minimum(np.maximum(signal, 0), ceiling) + np.float32(0)
    return bounded


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
