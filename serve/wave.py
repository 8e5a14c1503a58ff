"""Rows that run together, with their hidden states."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from serve.columns import RuleColumns
from serve.row import Row
from serve.runner import AnyRunner, Hidden
from serve.traits import Traits

_ARRAYS = ("columns", "depths", "hidden", "keep", "last_exit", "logits", "mask", "signals")
_PLACES = np.arange(4096, dtype=np.int64)


class Wave:
    """Rows at one depth; in a shared-layer model, at depths of their own.

    What the scheduler reads (rows, depth, longest, deadline_s, level) is kept without arrays;
    the rest is filled in by the core once the wave runs.

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
        logits: (rows, labels) of the last segment; empty at depth 0.
        signals: (rows,) the rules' signals there.
    """

    __slots__ = (
        "columns",
        "deadline_s",
        "depth",
        "depths",
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
        self.columns: RuleColumns
        self.hidden: Hidden = None
        self.keep: NDArray[np.int64]
        self.mask: NDArray[np.int64]
        self.logits: NDArray[np.float32]
        self.signals: NDArray[np.float32]

    @property
    def padded_tokens(self) -> int:
        """Tokens a segment computes for this wave."""
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
        lengths = np.array([row.num_tokens for row in self.rows])
        self.mask = (_places(self.longest) < lengths[:, None]).astype(np.int64)
        self.columns = RuleColumns.of([row.rule for row in self.rows], traits)
        self.keep = _places(len(self.rows))
        self.logits = np.empty((len(self.rows), 0), np.float32)
        self.signals = np.empty(len(self.rows), np.float32)
        if shared:
            self.depths = np.zeros(len(self.rows), np.int64)
            self.last_exit = np.full(len(self.rows), -1, np.int64)

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
        self.keep = _places(len(self.rows))

    def land(self, hidden: Hidden) -> None:
        """Take over the rows' hidden states after a segment; the wave is one deeper."""
        self.place(hidden)
        self.depth += 1
        if self.depths is not None:
            self.depths = self.depths + 1

    def compact(self, stay: NDArray[np.bool_]) -> None:
        """Keep only some rows; hidden states are not touched, only `keep`."""
        index = stay.nonzero()[0]
        if len(index):
            self._take(index)
        else:
            self.set_rows([])

    def halves(self) -> tuple["Wave", "Wave"]:
        """Return two waves over the same hidden states, each with half of the rows."""
        middle, places = len(self.rows) // 2, _places(len(self.rows))
        return self._copy()._take(places[:middle]), self._copy()._take(places[middle:])

    def _copy(self) -> "Wave":
        copy = Wave(self.rows, self.depth, self.held_from_s)
        for name in _ARRAYS:
            setattr(copy, name, getattr(self, name))
        return copy

    def _take(self, index: NDArray[np.intp]) -> "Wave":
        rows = self.rows
        self.set_rows([rows[i] for i in index.tolist()])
        self.columns = self.columns.take(index)
        self.keep, self.mask = self.keep[index], self.mask[index, : self.longest]
        self.logits, self.signals = self.logits[index], self.signals[index]
        if self.depths is not None and self.last_exit is not None:
            self.depths, self.last_exit = self.depths[index], self.last_exit[index]
            self.depth = int(self.depths.min()) if len(index) else self.depth
        return self


def gather(waves: Sequence[Wave]) -> Wave:
    """Return one wave with all rows: bookkeeping only, without arrays."""
    if len(waves) == 1:
        return waves[0]
    rows = [row for wave in waves for row in wave.rows]
    held_from_s = min(wave.held_from_s for wave in waves)
    return Wave(rows, min(wave.depth for wave in waves), held_from_s)


def merge(waves: Sequence[Wave], runner: AnyRunner) -> Wave:
    """Join waves into one; their hidden states are copied together.

    Args:
        waves: one or more, all with hidden states.
        runner: joins the hidden states, wherever they lie.
    """
    merged = gather(waves)
    if len(waves) == 1:
        return merged
    merged.hidden = runner.join([(wave.hidden, wave.keep, wave.longest) for wave in waves])
    merged.keep = _places(len(merged.rows))
    merged.columns = RuleColumns.concatenate([wave.columns for wave in waves])
    merged.mask = np.zeros((len(merged.rows), merged.longest), np.int64)
    row = 0
    for wave in waves:
        merged.mask[row : row + len(wave.rows), : wave.longest] = wave.mask
        row += len(wave.rows)
    labels = max(wave.logits.shape[1] for wave in waves)
    merged.logits = np.concatenate([_with_labels(wave.logits, labels) for wave in waves])
    merged.signals = np.concatenate([wave.signals for wave in waves])
    if waves[0].depths is not None:
        merged.depths = np.concatenate([w.depths for w in waves if w.depths is not None])
        merged.last_exit = np.concatenate([w.last_exit for w in waves if w.last_exit is not None])
    return merged


def _places(num: int) -> NDArray[np.int64]:
    """Return 0 to num - 1, not to be written to."""
    return _PLACES[:num] if num <= len(_PLACES) else np.arange(num, dtype=np.int64)


def _with_labels(logits: NDArray[np.float32], labels: int) -> NDArray[np.float32]:
    """Return logits of fresh rows, which have none yet, in the shape of the others'."""
    return logits if logits.shape[1] else np.full((len(logits), labels), np.nan, np.float32)
