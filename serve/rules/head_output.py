"""What an exit head gives, and what a rule answers with instead."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class HeadOutput(NamedTuple):
    """What one exit head gives for the rows of a batch.

    Attributes:
        logits: (rows, labels); for token classification (rows, tokens, labels).
        uncertainty: (rows,) the error that the head predicts for itself; None without one.
        counted: (rows, tokens) for token classification: which tokens rules look at. Padding and
            special tokens are left out.
    """

    logits: NDArray[np.float32]
    uncertainty: NDArray[np.float32] | None = None
    counted: NDArray[np.bool_] | None = None

    def of(self, rows: NDArray[np.intp]) -> "HeadOutput":
        """Return the output for these rows only."""
        return HeadOutput(
            self.logits[rows],
            None if self.uncertainty is None else self.uncertainty[rows],
            None if self.counted is None else self.counted[rows],
        )


class Prediction(NamedTuple):
    """What rows would leave with now, where that is not the logits of this exit.

    Attributes:
        logits: (rows, labels); for token classification (rows, tokens, labels).
        exit_index: (rows,) the exit whose head gave the logits, counted from 0.
        label: (rows,) the label that the rule chose; -1 for the label of the largest logit.
    """

    logits: NDArray[np.float32]
    exit_index: NDArray[np.int64]
    label: NDArray[np.int64]

    @classmethod
    def at(cls, logits: NDArray[np.float32], exit_index: int) -> "Prediction":
        """Return a copy of one exit's own logits as the prediction of its rows."""
        num_rows = len(logits)
        exits = np.full(num_rows, exit_index, np.int64)
        return cls(logits.copy(), exits, np.full(num_rows, -1, np.int64))

    def put(self, rows: NDArray[np.intp], own: "Prediction") -> None:
        """Write what some of the rows would leave with."""
        self.logits[rows], self.exit_index[rows] = own.logits, own.exit_index
        self.label[rows] = own.label
