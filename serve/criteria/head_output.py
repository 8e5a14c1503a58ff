"""What rules are told at an exit, and what they say.

Whatever a rule is told comes row by row, or once for all rows where they are at one exit.
"""

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

ExitIndex: TypeAlias = int | NDArray[np.int64]  # (rows,) where they are at different exits
Temperature: TypeAlias = float | NDArray[np.float32]  # (rows,) likewise
Rows: TypeAlias = slice | NDArray[np.intp]  # which of a batch's rows; a slice for all of them
Opinion: TypeAlias = tuple[NDArray[np.bool_], NDArray[np.float32]]  # (rows,) confident, signal

EVERY = slice(None)


class HeadOutput(NamedTuple):
    """What an exit head says of the rows of a batch.

    Attributes:
        logits: (rows, labels); of token classification (rows, tokens, labels).
        uncertainty: (rows,) the heads' own predicted error, if they give it.
        counted: (rows, tokens) of token classification: which tokens count; padding and
            special tokens do not.
    """

    logits: NDArray[np.float32]
    uncertainty: NDArray[np.float32] | None = None
    counted: NDArray[np.bool_] | None = None

    def of(self, rows: NDArray[np.intp]) -> "HeadOutput":
        """Return what is said of these rows only."""
        uncertainty, counted = self.uncertainty, self.counted
        return HeadOutput(
            self.logits[rows],
            None if uncertainty is None else uncertainty[rows],
            None if counted is None else counted[rows],
        )


class Prediction(NamedTuple):
    """The answers that the rows would leave with now, where they are not this exit's.

    Attributes:
        logits: (rows, labels); of token classification (rows, tokens, labels).
        exit_index: (rows,) whose head gives each answer, counted from 0.
        label: (rows,) the answer's label; -1 for the one of the largest logit.
    """

    logits: NDArray[np.float32]
    exit_index: NDArray[np.int64]
    label: NDArray[np.int64]
