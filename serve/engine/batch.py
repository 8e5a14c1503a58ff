"""Rows that run together, with their hidden states."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from serve.criteria.judge import Prediction
from serve.criteria.rule_state import RuleState
from serve.engine.row import Row
from serve.engine.runner import Hidden
from serve.rules.traits import Traits

_FILLED_IN = (
    "columns",
    "counted",
    "depths",
    "given",
    "has_trails",
    "hidden",
    "keep",
    "last_exit",
    "logits",
    "mask",
    "signals",
)
_PLACES = np.arange(4096, dtype=np.int64)


class Batch:
    """Rows at one depth; in a shared-layer model, at depths of their own.

    What the scheduler reads (rows, depth, longest, deadline_s, level) is kept without arrays;
    the rest is filled in by the core once the batch runs.

    Attributes:
        rows: in order of admission.
        depth: segments they have been through; of rows at several depths, the fewest.
        depths: (rows,) layers that each row has been through, where rows may differ; else None.
        last_exit: (rows,) likewise, the exit each row has come by last; -1 before the first.
        longest: tokens of the longest row: what the others are padded to.
        num_tokens: of all rows, without padding.
        deadline_s: the earliest of any row.
        level: the best priority of any row.
        held_from_s: from when on it counts how long the rows may be held back.
        columns: the rows' rules and state.
        hidden: (rows_in, tokens_in, width) that the last segment gave, the runner's own.
        keep: (rows,) where each row lies in `hidden`.
        mask: (rows, tokens) 1 for real tokens.
        counted: (rows, tokens) of token classification, the tokens that exit rules look at; of
            other tasks None.
        logits: (rows, labels) of the last segment, of token classification (rows, tokens,
            labels); without labels at depth 0.
        uncertainty: (rows,) of the last segment, if the heads give it; only until the rows have
            been judged.
        signals: (rows,) the rules' signals there.
        given: the answers that rows would leave with, if any rule gives others than the logits.
        has_trails: whether a row may want a record of the exits it comes by.
    """

    __slots__ = (
        "columns",
        "counted",
        "deadline_s",
        "depth",
        "depths",
        "given",
        "has_trails",
        "held_from_s",
        "hidden",
        "keep",
        "last_exit",
        "level",
        "logits",
        "longest",
        "mask",
        "num_tokens",
        "rows",
        "signals",
        "uncertainty",
    )

    def __init__(self, rows: list[Row], depth: int = 0, held_from_s: float = math.inf) -> None:
        self.rows = rows
        self.depth = depth
        self.held_from_s = held_from_s
        self.depths: NDArray[np.int64] | None = None
        self.last_exit: NDArray[np.int64] | None = None
        self.deadline_s = min([row.deadline_s for row in rows], default=math.inf)
        self.level = min([row.priority for row in rows], default=0)
        lengths = [row.num_tokens for row in rows]
        self.longest, self.num_tokens = max(lengths, default=0), sum(lengths)
        self.columns: RuleState
        self.hidden: Hidden = None
        self.keep: NDArray[np.int64]
        self.mask: NDArray[np.int64]
        self.counted: NDArray[np.bool_] | None = None
        self.given: Prediction | None = None
        self.has_trails = False
        self.logits: NDArray[np.float32]
        self.uncertainty: NDArray[np.float32] | None
        self.signals: NDArray[np.float32]

    @property
    def padded_tokens(self) -> int:
        """Tokens a segment computes for this batch."""
        return len(self.rows) * self.longest

    def set_rows(self, rows: list[Row]) -> None:
        """Exchange the rows, and what is known of them without arrays."""
        self.rows = rows
        lengths = [row.num_tokens for row in rows]
        self.longest, self.num_tokens = max(lengths, default=0), sum(lengths)
        if self.deadline_s < math.inf:
            self.deadline_s = min([row.deadline_s for row in rows], default=math.inf)
        self.level = min([row.priority for row in rows], default=0)

    def prepare(self, traits: Traits, shared: bool) -> None:
        """Lay out the arrays of fresh rows."""
        self.mask = self._mask()
        self.columns = RuleState.of([row.rule for row in self.rows], traits)
        self.keep = places(len(self.rows))
        self.logits = np.empty((len(self.rows), 0), np.float32)
        self.signals = np.empty(len(self.rows), np.float32)
        self.has_trails = any([row.trail is not None for row in self.rows])
        if traits.task == "token":
            self.counted = self._counted()
        if shared:
            self.depths = np.zeros(len(self.rows), np.int64)
            self.last_exit = np.full(len(self.rows), -1, np.int64)

    def _mask(self) -> NDArray[np.int64]:
        if self.num_tokens == self.padded_tokens:
            return np.ones((len(self.rows), self.longest), np.int64)
        lengths = np.array([row.num_tokens for row in self.rows])
        return (places(self.longest) < lengths[:, None]).astype(np.int64)

    def _counted(self) -> NDArray[np.bool_]:
        counted = self.mask.astype(np.bool_)
        for i, row in enumerate(self.rows):
            if row.counted is not None:
                counted[i, : row.num_tokens] = row.counted
        return counted

    def exits_of(self, rows: NDArray[np.intp]) -> list[int]:
        """Return the exit that each of these rows has come by last; -1 for none."""
        if self.last_exit is None:
            return [self.depth - 1] * len(rows)
        exits: list[int] = self.last_exit[rows].tolist()
        return exits

    def padded(self, pad_id: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return input ids and token types, both (rows, tokens)."""
        shape = len(self.rows), self.longest
        ids, types = np.full(shape, pad_id, np.int64), np.zeros(shape, np.int64)
        for i, row in enumerate(self.rows):
            ids[i, : row.num_tokens] = row.input_ids
            types[i, : row.num_tokens] = row.token_type_ids
        return ids, types

    def place(self, hidden: Hidden) -> None:
        """Take over hidden states that are those of the rows, in their order."""
        self.hidden = hidden
        self.keep = places(len(self.rows))

    def land(self, hidden: Hidden, segments: int = 1) -> None:
        """Take over the rows' hidden states after a segment, or several; the batch is deeper."""
        self.place(hidden)
        self.depth += segments
        if self.depths is not None:
            self.depths = self.depths + 1

    def compact(self, stay: NDArray[np.bool_]) -> None:
        """Keep only some rows; hidden states are not touched, only `keep`."""
        index = stay.nonzero()[0]
        if len(index):
            self._take(index)
        else:
            self.set_rows([])

    def halves(self) -> tuple["Batch", "Batch"]:
        """Return two batches over the same hidden states, each with half of the rows."""
        middle, every = len(self.rows) // 2, places(len(self.rows))
        return self._copy()._take(every[:middle]), self._copy()._take(every[middle:])

    def _copy(self) -> "Batch":
        copy = Batch(self.rows, self.depth, self.held_from_s)
        for name in _FILLED_IN:
            setattr(copy, name, getattr(self, name))
        return copy

    def _take(self, index: NDArray[np.intp]) -> "Batch":
        rows = self.rows
        self.set_rows([rows[i] for i in index.tolist()])
        self.columns = self.columns.take(index)
        self.keep, self.mask = self.keep[index], self.mask[index, : self.longest]
        self.logits, self.signals = self.logits[index], self.signals[index]
        if self.given is not None:
            logits, exit_index, label = self.given
            self.given = Prediction(logits[index], exit_index[index], label[index])
        if self.counted is not None:
            self._narrow(self.counted[index])
        if self.depths is not None and self.last_exit is not None:
            self.depths, self.last_exit = self.depths[index], self.last_exit[index]
            self.depth = int(self.depths.min()) if len(index) else self.depth
        return self

    def _narrow(self, counted: NDArray[np.bool_]) -> None:
        """Cut what has an axis of tokens to the rows that are left."""
        self.counted = counted[:, : self.longest]
        if self.logits.ndim == 3:
            self.logits = self.logits[:, : self.longest]
        if self.given is not None:
            self.given = self.given._replace(logits=self.given.logits[:, : self.longest])


def gather(batches: Sequence[Batch]) -> Batch:
    """Return one batch with all rows: bookkeeping only, without arrays."""
    if len(batches) == 1:
        return batches[0]
    rows = [row for batch in batches for row in batch.rows]
    held_from_s = min(batch.held_from_s for batch in batches)
    return Batch(rows, min(batch.depth for batch in batches), held_from_s)


def places(num: int) -> NDArray[np.int64]:
    """Return (num,) 0 to num - 1, not to be written to."""
    return _PLACES[:num] if num <= len(_PLACES) else np.arange(num, dtype=np.int64)
