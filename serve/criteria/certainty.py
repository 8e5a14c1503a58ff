"""Rules that look at one exit: is its signal beyond the threshold?"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from serve.criteria.carry import BEST, BEST_EXIT, BEST_LOGITS, FALLBACK, OF_LABEL, QUANTILE, fit
from serve.criteria.head_output import ExitIndex, HeadOutput, Opinion, Rows, Temperature
from serve.criteria.multipart import distributions, reduced
from serve.criteria.rule_state import RuleState
from serve.criteria.signals import confidence, entropy, margin, normalized_entropy, softmax


def by_entropy(
    columns: RuleState,
    rows: Rows,
    said: HeadOutput,
    exit_index: ExitIndex,
    temperature: Temperature,
) -> Opinion:
    """Entropy below the threshold."""
    threshold = columns.threshold_at(rows, exit_index)
    if columns.task == "single_label":
        signal = entropy(said.logits)
        return signal < threshold, signal
    signal = _of_parts(columns, rows, said, entropy)
    return signal < threshold, _shown(signal, said)


def by_normalized_entropy(
    columns: RuleState,
    rows: Rows,
    said: HeadOutput,
    exit_index: ExitIndex,
    temperature: Temperature,
) -> Opinion:
    """Normalized entropy below the threshold."""
    signal = normalized(columns, rows, said)
    return signal < columns.threshold_at(rows, exit_index), _shown(signal, said)


def by_confidence(
    columns: RuleState,
    rows: Rows,
    said: HeadOutput,
    exit_index: ExitIndex,
    temperature: Temperature,
) -> Opinion:
    """Top probability, at the exit's temperature, at or above the threshold."""
    if columns.task == "single_label":
        signal = confidence(said.logits, temperature)
    else:
        if isinstance(temperature, np.ndarray):
            temperature = temperature[:, None]
        signal = _of_parts(columns, rows, said, confidence, temperature)
    if BEST in columns.carry:
        _note_best(columns, rows, said, exit_index, signal)
    return signal >= columns.threshold_at(rows, exit_index), _shown(signal, said)


def by_margin(
    columns: RuleState,
    rows: Rows,
    said: HeadOutput,
    exit_index: ExitIndex,
    temperature: Temperature,
) -> Opinion:
    """Top probability above the second by more than the threshold."""
    if columns.task == "single_label":
        signal = margin(said.logits)
    else:
        signal = _of_parts(columns, rows, said, margin)
    return signal > columns.threshold_at(rows, exit_index), _shown(signal, said)


def by_learned(
    columns: RuleState,
    rows: Rows,
    said: HeadOutput,
    exit_index: ExitIndex,
    temperature: Temperature,
) -> Opinion:
    """The head's own predicted error below the threshold."""
    signal = said.uncertainty
    if signal is None:
        signal = np.full(len(said.logits), np.nan, np.float32)
    return signal < columns.threshold_at(rows, exit_index), signal


def by_classes(
    columns: RuleState,
    rows: Rows,
    said: HeadOutput,
    exit_index: ExitIndex,
    temperature: Temperature,
) -> Opinion:
    """Probability of the most probable label above that label's threshold."""
    p, label = softmax(said.logits), said.logits.argmax(axis=-1)
    every = np.arange(len(label))
    signal = p[every, label]
    confident = signal > columns.carry[OF_LABEL][rows][every, label]
    return confident, signal


def normalized(columns: RuleState, rows: Rows, said: HeadOutput) -> NDArray[np.float32]:
    """Return (rows,) normalized entropies; of several parts, reduced."""
    if columns.task == "single_label":
        return normalized_entropy(said.logits)
    return _of_parts(columns, rows, said, normalized_entropy)


def _shown(signal: NDArray[np.float32], said: HeadOutput) -> NDArray[np.float32]:
    """Return the signals as they are reported: 0 of rows in which no token counts."""
    if said.counted is None:
        return signal
    return np.where(said.counted.any(axis=1), signal, np.float32(0))


def _of_parts(
    columns: RuleState,
    rows: Rows,
    said: HeadOutput,
    read: Callable[..., NDArray[np.float32]],
    *temperature: Any,
) -> NDArray[np.float32]:
    """Return (rows,) the signals of all parts, reduced as each row's rule wants it."""
    signals = read(distributions(columns.task, said.logits), *temperature)
    quantile = columns.carry[QUANTILE][rows] if QUANTILE in columns.carry else None
    return reduced(signals, said.counted, quantile, sure_is_high=read in (confidence, margin))


def _note_best(
    columns: RuleState,
    rows: Rows,
    said: HeadOutput,
    exit_index: ExitIndex,
    signal: NDArray[np.float32],
) -> None:
    """Keep the answers of rows that are surer here than at any exit before.

    Exits before a row's first permitted one do not count: they must not answer.
    """
    carry = columns.carry
    may_answer = carry[FALLBACK][rows] & (columns.first[rows] <= exit_index)
    here = np.flatnonzero(may_answer & (signal > carry[BEST][rows]))
    own = here if isinstance(rows, slice) else rows[here]
    carry[BEST][own] = signal[here]
    carry[BEST_EXIT][own] = exit_index[here] if isinstance(exit_index, np.ndarray) else exit_index
    carry[BEST_LOGITS] = fit(carry[BEST_LOGITS], said.logits.shape[1], np.nan)
    carry[BEST_LOGITS][own] = said.logits[here]
