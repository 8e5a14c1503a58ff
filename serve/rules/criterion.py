"""How a kind of rule judges rows: arithmetic over many rows at once.

From what an exit head gives, to which rows may leave, why, and what they leave with.
"""

import math
from collections.abc import Mapping
from enum import IntEnum
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray


class Reason(IntEnum):
    """Why a row left, or that it stays."""

    STAYS = 0
    CONFIDENT = 1
    PATIENCE = 2
    LAYER = 3
    MAX_LAYER = 4
    FINAL = 5
    DEADLINE = 6
    VOTES = 7

    @property
    def label(self) -> str:
        """The reason's name in JSON and metrics."""
        return self.name.lower()


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


# Arrays by name. Of a batch: rows first. Of one fresh row: without the axis of rows.
Columns: TypeAlias = dict[str, NDArray[Any]]
FreshColumns: TypeAlias = Mapping[str, NDArray[Any]]

EVERY_ROW = slice(None)


class RowsAtExit:
    """The rows of one criterion at one exit: their columns, and where they are.

    Reading `rows[name]` gives a column of these rows only; assigning writes it back.

    Attributes:
        exit_index: the exit, counted from 0.
        temperature: temperature of the exit's head.
        permitted: (rows,) whether a row may leave at this exit by its own choice.
    """

    __slots__ = ("_columns", "_index", "exit_index", "permitted", "temperature")

    def __init__(
        self,
        columns: Columns,
        index: slice | NDArray[np.intp],
        exit_index: int,
        temperature: float,
        permitted: NDArray[np.bool_],
    ) -> None:
        self._columns, self._index = columns, index
        self.exit_index, self.temperature, self.permitted = exit_index, temperature, permitted

    def __contains__(self, name: str) -> bool:
        return name in self._columns

    def __getitem__(self, name: str) -> NDArray[Any]:
        # To index every row takes longer than to ask.
        column = self._columns[name]
        return column if self._index is EVERY_ROW else column[self._index]

    def __setitem__(self, name: str, values: NDArray[Any]) -> None:
        if self._index is EVERY_ROW:
            self._columns[name] = values
            return
        column = self._columns[name]
        if column.ndim > 1 and column.shape[1] != values.shape[1]:
            column = self._columns[name] = fit_width(column, values.shape[1])
        column[self._index] = values

    def at_exit(self, name: str) -> NDArray[Any]:
        """Return (rows,) a column's values for this exit: one for all exits, or one per exit."""
        column = self[name]
        return column if column.ndim == 1 else column[:, self.exit_index]


class Judgement(NamedTuple):
    """What a criterion says of its rows at an exit.

    Attributes:
        confident: (rows,) bool, whether each row's rule would let it leave.
        signal: (rows,) float32, what was compared; NaN where there is none.
        prediction: what the rows would leave with; None for this exit's own logits.
    """

    confident: NDArray[np.bool_]
    signal: NDArray[np.float32]
    prediction: Prediction | None = None


class Criterion:
    """The arithmetic of one kind of rule. Equal ones judge the rows of a batch together.

    Attributes:
        reason: why rows leave that are confident.
        counts: whether it keeps count at every exit, also at those where no row may leave.
    """

    reason: ClassVar[Reason] = Reason.CONFIDENT
    counts: ClassVar[bool] = False

    def judge(self, rows: RowsAtExit, head: HeadOutput) -> Judgement:
        """Judge rows at an exit, and advance what the criterion keeps of them in their columns.

        A NaN signal is never confident. Arrays that `rows` gives are not to be written to.
        """
        raise NotImplementedError

    def first_heard(self, first: int, last: int) -> int:
        """Return the index of the first exit whose output the rule needs; see `CompiledRule`."""
        return 0 if self.counts else first

    def stay_gap(self, threshold: float, num_labels: int, temperature: float) -> float:
        """Return the smallest gap between the two largest logits at which a row may leave.

        Below it a row of a single-label model stays. NaN where two logits do not tell. Only asked
        of rules that have no column but `threshold`, for others remember earlier exits.
        """
        return math.nan


def fit_width(column: NDArray[Any], width: int, blank: float = 0) -> NDArray[Any]:
    """Return a column with its second axis cut, or filled up, to a width."""
    if column.ndim == 1 or column.shape[1] == width:
        return column
    if column.shape[1] > width:
        return column[:, :width]
    fitted = np.full((len(column), width, *column.shape[2:]), blank, column.dtype)
    fitted[:, : column.shape[1]] = column
    return fitted
