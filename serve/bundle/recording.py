"""`recording.npy`: every exit's logits of the calibration data, on which rules are tried."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from serve.criteria.judge import HeadOutput, Prediction, Reason, judge
from serve.criteria.rule_state import RuleState
from serve.errors import InvalidBundle, InvalidRule
from serve.rules import ExitRule, LearnedRule
from serve.rules.traits import Traits

RECORDING = "recording.npy"

# Logits (exits, rows, labels). Of token classification, which no bundle records, they are
# (exits, rows, tokens, labels).
Recording: TypeAlias = NDArray[np.float32]


def read_recording(path: Path, shape: tuple[int, int]) -> Recording:
    """Read a recording.

    Args:
        path: a `.npy` file; pickled objects in it are refused.
        shape: (exits, labels) of the model.

    Raises:
        InvalidBundle: the file is damaged or belongs to another model.
    """
    try:
        logits = np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise InvalidBundle(f"{path} is no array: {error}") from None
    if not isinstance(logits, np.ndarray) or logits.dtype.kind != "f":
        raise InvalidBundle(f"{path} is no array of floating-point numbers")
    if logits.ndim != 3 or logits.shape[::2] != shape or not logits.shape[1]:
        raise InvalidBundle(
            f"{path} has shape {logits.shape}; expected ({shape[0]} exits, rows, {shape[1]} labels)"
        )
    return np.ascontiguousarray(logits, np.float32)


class Taken(NamedTuple):
    """The answers that a rule gives to recorded rows.

    Attributes:
        exits: (rows,) at which exit each row leaves, counted from 0.
        logits: (rows, labels) of the answer; of token classification (rows, tokens, labels).
        heads: (rows,) the head whose logits these are; under most rules that of the exit.
        labels: (rows,) the label if the rule did not take that of the largest logit, else -1.
    """

    exits: NDArray[np.intp]
    logits: NDArray[np.float32]
    heads: NDArray[np.int64]
    labels: NDArray[np.int64]

    @property
    def deciding(self) -> NDArray[np.float32]:
        """Logits whose largest is at the answer's label, also where the rule chose the label."""
        chosen = np.flatnonzero(self.labels >= 0)
        if not len(chosen):
            return self.logits
        logits = self.logits.copy()
        top = np.nextafter(logits[chosen].max(axis=-1), np.float32(np.inf))
        logits[chosen, self.labels[chosen]] = top
        return logits


def exits_taken(
    recording: Recording,
    rule: ExitRule,
    traits: Traits,
    temperatures: tuple[float, ...],
    counted: NDArray[np.bool_] | None = None,
) -> NDArray[np.intp]:
    """Return (rows,) the exit at which the rule lets each row leave, counted from 0.

    Args:
        recording: logits at just these exits.
        rule: checked against the model.
        traits: of the model, with these exits.
        temperatures: one per exit.
        counted: (rows, tokens) of token classification: which tokens count.

    Raises:
        InvalidRule: the rule is `learned`; a recording holds no predicted errors.
    """
    left_at = np.full(recording.shape[1], len(recording) - 1)
    for index, leaves, _ in _leaving(recording, rule, traits, temperatures, counted):
        left_at[leaves] = index
    return left_at


def answers_taken(
    recording: Recording,
    rule: ExitRule,
    traits: Traits,
    temperatures: tuple[float, ...],
    counted: NDArray[np.bool_] | None = None,
) -> Taken:
    """Return where the rule lets each row leave, and the answers.

    Args and errors are those of `exits_taken`.
    """
    num_rows = recording.shape[1]
    exits = np.full(num_rows, len(recording) - 1)
    logits = recording[-1].copy()
    heads, labels = exits.copy(), np.full(num_rows, -1)
    for index, leaves, given in _leaving(recording, rule, traits, temperatures, counted):
        exits[leaves] = heads[leaves] = index
        logits[leaves] = recording[index][leaves]
        if given is not None:
            logits[leaves], heads[leaves] = given.logits[leaves], given.exit_index[leaves]
            labels[leaves] = given.label[leaves]
    return Taken(exits, logits, heads, labels)


def _leaving(
    recording: Recording,
    rule: ExitRule,
    traits: Traits,
    temperatures: tuple[float, ...],
    counted: NDArray[np.bool_] | None,
) -> Iterator[tuple[int, NDArray[np.bool_], Prediction | None]]:
    """Yield each exit, (rows,) which leave there, and the answers if they are not the exit's."""
    if isinstance(rule, LearnedRule):
        raise InvalidRule(
            "rule learned cannot be tried on a recording, which holds logits and no predicted "
            "errors; rules that read logits can"
        )
    num_exits, num_rows = recording.shape[:2]
    # Compiled once for all rows: one by one it would take longer than judging them.
    columns = RuleState.of([rule], traits).take(np.zeros(num_rows, np.intp))
    inside = np.ones(num_rows, np.bool_)
    for index, logits in enumerate(recording):
        said = HeadOutput(logits, counted=counted)
        reasons, _, given = judge(columns, said, index, num_exits, temperatures[index])
        leaves = inside & (reasons != Reason.STAYS)
        inside &= ~leaves
        yield index, leaves, given
