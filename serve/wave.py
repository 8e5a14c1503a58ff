"""Rows at one depth that run together, with their hidden states."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from serve.columns import RuleColumns
from serve.row import Row
from serve.runner import Hidden, Runner, Step


@dataclass(slots=True, eq=False)
class Wave:
    """Rows at one depth.

    Attributes:
        rows: in order of admission.
        columns: their rules and state, in the same order.
        depth: segments they have been through.
        hidden: (rows_in, tokens_in, width) that the last segment gave, the runner's own.
        keep: (rows,) where each row lies in `hidden`.
        logits: (rows, labels) of the last segment; empty at depth 0.
        signals: (rows,) the rules' signals there.
        overtaken: how often other rows have run while this wave waited.
    """

    rows: list[Row]
    columns: RuleColumns
    depth: int = 0
    hidden: Hidden = None
    keep: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    logits: NDArray[np.float32] = field(default_factory=lambda: np.empty((0, 0), np.float32))
    signals: NDArray[np.float32] = field(default_factory=lambda: np.empty(0, np.float32))
    overtaken: int = 0

    @classmethod
    def of(cls, rows: list[Row], exits: tuple[int, ...]) -> "Wave":
        """Return a wave of fresh rows."""
        return cls(rows, RuleColumns.of([row.rule for row in rows], exits))

    @property
    def longest(self) -> int:
        """Tokens of the longest row: what the others are padded to."""
        return max(row.num_tokens for row in self.rows)

    @property
    def padded_tokens(self) -> int:
        """Tokens a segment computes for this wave."""
        return len(self.rows) * self.longest

    def land(self, step: Step) -> None:
        """Take over what a segment gave for the rows; the wave is one deeper."""
        self.hidden, self.logits = step
        self.keep = np.arange(len(self.rows), dtype=np.int64)
        self.depth += 1

    def compact(self, stay: NDArray[np.bool_]) -> None:
        """Keep only some rows; hidden states are not touched, only `keep`."""
        index = np.flatnonzero(stay)
        self.rows = [self.rows[i] for i in index]
        self.columns = self.columns.take(index)
        if self.depth:
            self.keep, self.logits = self.keep[index], self.logits[index]
            self.signals = self.signals[index]

    def attention_mask(self) -> NDArray[np.int64]:
        """Return (rows, tokens): 1 for real tokens, padded to the longest row."""
        lengths = np.array([row.num_tokens for row in self.rows])
        return (np.arange(lengths.max()) < lengths[:, None]).astype(np.int64)

    def padded(self, pad_id: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return input ids and token types, both (rows, tokens)."""
        shape = len(self.rows), self.longest
        ids, types = np.full(shape, pad_id, np.int64), np.zeros(shape, np.int64)
        for i, row in enumerate(self.rows):
            ids[i, : row.num_tokens] = row.input_ids
            types[i, : row.num_tokens] = row.token_type_ids
        return ids, types


def merge(waves: Sequence[Wave], runner: Runner) -> Wave:
    """Join waves of one depth into one; their hidden states are copied together.

    Args:
        waves: one or more, all at the same depth of at least 1.
        runner: joins the hidden states, wherever they lie.
    """
    if len(waves) == 1:
        return waves[0]
    rows = [row for wave in waves for row in wave.rows]
    parts = [(wave.hidden, wave.keep, wave.longest) for wave in waves]
    return Wave(
        rows=rows,
        columns=RuleColumns.concatenate([wave.columns for wave in waves]),
        depth=waves[0].depth,
        hidden=runner.join(parts),
        keep=np.arange(len(rows), dtype=np.int64),
        logits=np.concatenate([wave.logits for wave in waves]),
        signals=np.concatenate([wave.signals for wave in waves]),
    )
