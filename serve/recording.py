"""`recording.npy`: what every exit said of the calibration data, to try rules and exits on."""

from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from serve.columns import RuleColumns
from serve.errors import InvalidBundle
from serve.judge import Reason, Said, judge
from serve.rules import ExitRule
from serve.traits import Traits

RECORDING = "recording.npy"

Recording: TypeAlias = NDArray[np.float32]  # (exits, rows, labels): logits


def read_recording(path: Path, shape: tuple[int, int]) -> Recording:
    """Read a recording.

    Args:
        path: a `.npy` file; pickled objects in it are refused.
        shape: (exits, labels) of the model.

    Raises:
        InvalidBundle: it is damaged or of another model.
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


def exits_taken(
    recording: Recording, rule: ExitRule, traits: Traits, temperatures: tuple[float, ...]
) -> NDArray[np.intp]:
    """Return (rows,) the exit at which the rule lets each row leave, counted from 0.

    Args:
        recording: logits at just these exits.
        rule: checked against the model.
        traits: of the model, with these exits.
        temperatures: one per exit.
    """
    num_exits, num_rows, _ = recording.shape
    # Compiled once: one by one, many rows would take longer than all that is judged here.
    columns = RuleColumns.of([rule], traits).take(np.zeros(num_rows, np.intp))
    left_at = np.full(num_rows, num_exits - 1)
    inside = np.ones(num_rows, np.bool_)
    for index, logits in enumerate(recording):
        reasons = judge(columns, Said(logits), index, num_exits, temperatures[index]).reasons
        leaves = inside & (reasons != Reason.STAYS)
        left_at[leaves] = index
        inside &= ~leaves
    return left_at
