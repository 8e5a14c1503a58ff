"""Rows at one depth that run together, with their hidden states."""

import math
from collections.abc import Sequence
from copy import copy
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from serve.engine.row import Row
from serve.engine.runner import Hidden, ModelRunner
from serve.rules.criterion import HeadOutput, Prediction
from serve.rules.judge import RuleState
from serve.rules.traits import Traits

_ARANGE = np.arange(4096, dtype=np.int64)


class Batch:
    """Rows at one depth.

    What the scheduler reads (rows, depth, longest, deadline_s, level) is kept without arrays.
    The rest is filled in when the batch first runs.

    Attributes:
        rows: the rows, in no particular order; all arrays per row follow it.
        depth: segments they have been through.
        longest: tokens of the longest row; the others are padded to it.
        num_tokens: tokens of all rows, without padding.
        deadline_s: the earliest of any row.
        level: the best priority of any row.
        held_from_s: start of the time for which the rows may be held back.
        state: the rows' rules and progress.
        hidden: (rows_in, tokens_in, width) that the last segment gave, the runner's own.
        keep: (rows,) where each row lies in `hidden`.
        mask: (rows, tokens) 1 for real tokens.
        counted: (rows, tokens) for token classification, the tokens that exit rules look at;
            None for other tasks.
        head: what the last exit's head gave for the rows.
        signals: (rows,) the rules' signals there.
        prediction: what the rows would leave with, if some rule answers with anything but the
            logits.
        traced: whether some row wants a record of the exits it passes.
    """

    def __init__(self, rows: list[Row], depth: int = 0, held_from_s: float = math.inf) -> None:
        self.depth, self.held_from_s = depth, held_from_s
        self.deadline_s = math.inf
        self.set_rows(rows)
        self.deadline_s = min([row.deadline_s for row in rows], default=math.inf)
        self.state: RuleState
        self.hidden: Hidden = None
        self.keep: NDArray[np.int64]
        self.mask: NDArray[np.int64]
        self.counted: NDArray[np.bool_] | None = None
        self.head: HeadOutput
        self.signals: NDArray[np.float32]
        self.prediction: Prediction | None = None
        self.traced = False

    @property
    def padded_tokens(self) -> int:
        """Tokens that a segment computes for this batch."""
        return len(self.rows) * self.longest

    def set_rows(self, rows: list[Row]) -> None:
        """Exchange the rows, and what is known of them without arrays."""
        self.rows = rows
        lengths = [row.num_tokens for row in rows]
        self.longest, self.num_tokens = max(lengths, default=0), sum(lengths)
        if self.deadline_s < math.inf:
            self.deadline_s = min([row.deadline_s for row in rows], default=math.inf)
        self.level = min([row.priority for row in rows], default=0)

    def prepare(self, traits: Traits) -> None:
        """Lay out the arrays of fresh rows."""
        self.mask = self._mask()
        self.state = RuleState.of([row.rule for row in self.rows])
        self.keep = arange(len(self.rows))
        self.traced = any([row.exit_trace is not None for row in self.rows])
        if traits.task == "token":
            self.counted = self._counted()

    def _mask(self) -> NDArray[np.int64]:
        if self.num_tokens == self.padded_tokens:
            return np.ones((len(self.rows), self.longest), np.int64)
        lengths = np.array([row.num_tokens for row in self.rows])
        return (arange(self.longest) < lengths[:, None]).astype(np.int64)

    def _counted(self) -> NDArray[np.bool_]:
        counted = self.mask.astype(np.bool_)
        for i, row in enumerate(self.rows):
            if row.counted is not None:
                counted[i, : row.num_tokens] = row.counted
        return counted

    def padded(self, pad_id: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return input ids and token types, both (rows, tokens)."""
        shape = len(self.rows), self.longest
        ids, types = np.full(shape, pad_id, np.int64), np.zeros(shape, np.int64)
        for i, row in enumerate(self.rows):
            ids[i, : row.num_tokens] = row.input_ids
            types[i, : row.num_tokens] = row.token_type_ids
        return ids, types

    def pop_hidden(self) -> Hidden:
        """Return the hidden states and let go of them: they also hold rows that have left."""
        hidden, self.hidden = self.hidden, None
        return hidden

    def compact(self, stay: NDArray[np.bool_]) -> None:
        """Keep only some rows; hidden states are not touched, only `keep`."""
        index = stay.nonzero()[0]
        if len(index):
            self._take(index)
        else:
            self.set_rows([])

    def halves(self) -> tuple["Batch", "Batch"]:
        """Return two batches over the same hidden states, each with half of the rows."""
        middle, every = len(self.rows) // 2, arange(len(self.rows))
        return copy(self)._take(every[:middle]), copy(self)._take(every[middle:])

    def _take(self, index: NDArray[np.intp]) -> "Batch":
        rows = self.rows
        self.set_rows([rows[i] for i in index.tolist()])
        self.state = self.state.take(index)
        self.keep, self.mask = self.keep[index], self.mask[index, : self.longest]
        if self.counted is not None:
            self.counted = self.counted[index, : self.longest]
        if not self.depth:
            return self
        self.signals = self.signals[index]
        self.head = HeadOutput(self._cut(self.head.logits[index]), None, self.counted)
        if self.prediction is not None:
            logits, exit_index, label = self.prediction
            cut = self._cut(logits[index])
            self.prediction = Prediction(cut, exit_index[index], label[index])
        return self

    def _cut(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return logits of tokens cut to the longest row, and others as they are."""
        return logits[:, : self.longest] if logits.ndim == 3 else logits


def gather(batches: Sequence[Batch]) -> Batch:
    """Return one batch with all rows: bookkeeping only, without arrays."""
    rows = [row for batch in batches for row in batch.rows]
    return Batch(rows, batches[0].depth, min(batch.held_from_s for batch in batches))


def merge(batches: Sequence[Batch], runner: ModelRunner) -> Batch:
    """Join batches at one depth into one; their hidden states are copied together.

    Args:
        batches: one or more, all with hidden states.
        runner: joins the hidden states, wherever they lie.
    """
    if len(batches) == 1:
        return batches[0]
    merged = gather(batches)
    merged.hidden = runner.join([(batch.hidden, batch.keep, batch.longest) for batch in batches])
    merged.keep, longest = arange(len(merged.rows)), merged.longest
    merged.state = RuleState.concatenate([batch.state for batch in batches])
    merged.mask = _tokens_together([batch.mask for batch in batches], 0, longest)
    counted = [batch.counted for batch in batches if batch.counted is not None]
    merged.counted = _tokens_together(counted, False, longest) if counted else None
    logits = _logits_together([batch.head.logits for batch in batches], longest)
    merged.head = HeadOutput(logits, None, merged.counted)
    merged.signals = np.concatenate([batch.signals for batch in batches])
    merged.traced = any([batch.traced for batch in batches])
    if any([batch.prediction is not None for batch in batches]):
        merged.prediction = _predictions(batches, longest)
    return merged


def _predictions(batches: Sequence[Batch], longest: int) -> Prediction:
    parts = [
        batch.prediction or Prediction.at(batch.head.logits, batch.depth - 1) for batch in batches
    ]
    return Prediction(
        _logits_together([part.logits for part in parts], longest),
        np.concatenate([part.exit_index for part in parts]),
        np.concatenate([part.label for part in parts]),
    )


def _logits_together(parts: Sequence[NDArray[np.float32]], longest: int) -> NDArray[np.float32]:
    return _tokens_together(parts, np.nan, longest) if parts[0].ndim == 3 else np.concatenate(parts)


def _tokens_together(parts: Sequence[NDArray[Any]], fill: float, longest: int) -> NDArray[Any]:
    """Return the parts' rows one after another, (rows, tokens, ...), filled up to the longest."""
    if all([part.shape[1] == longest for part in parts]):
        return np.concatenate(parts)
    together = np.full((sum(map(len, parts)), longest, *parts[0].shape[2:]), fill, parts[0].dtype)
    row = 0
    for part in parts:
        together[row : row + len(part), : part.shape[1]] = part
        row += len(part)
    return together


def arange(num: int) -> NDArray[np.int64]:
    """Return (num,) 0 to num - 1, not to be written to."""
    return _ARANGE[:num] if num <= len(_ARANGE) else np.arange(num, dtype=np.int64)


@lru_cache(256)
def no_padding(num_tokens: int) -> NDArray[np.int64]:
    """Return (1, tokens) ones, the mask of a row that is alone, not to be written to."""
    return np.ones((1, num_tokens), np.int64)
