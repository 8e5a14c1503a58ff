"""Runs a batch through a bundle's graphs, with rows that leave and change places."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from export.checks.samples import Batch
from serve.engine.runner import ModelRunner

Rows = NDArray[np.int64]  # (n,) numbers of rows in a batch


class Reading(NamedTuple):
    """The outputs of an exit for some rows of a batch.

    Attributes:
        exit_index: which exit, counted from 0.
        rows: (n,) which rows, in any order.
        logits: (n, labels); of token classification (n, tokens, labels), padding cut off.
        uncertainty: (n,) the head's own predicted error, if it gives it.
    """

    exit_index: int
    rows: Rows
    logits: NDArray[np.float32]
    uncertainty: NDArray[np.float32] | None = None


def walk(runner: ModelRunner, batch: Batch, seed: int) -> Iterator[Reading]:
    """Run a batch as rows run while serving, and yield the outputs of every exit.

    Between two segments rows are reordered and one is dropped. Padding shrinks with the rows left.
    """
    generator = np.random.default_rng(seed)
    rows = np.arange(len(batch.input_ids))
    step = runner.start(*batch)
    yield Reading(0, rows, step.logits, step.uncertainty)
    for index in range(1, len(runner)):
        keep = generator.permutation(len(rows))[: max(1, len(rows) - 1)]
        rows = rows[keep]
        step = runner.advance(index, step.hidden, keep, _mask(batch, rows))
        yield Reading(index, rows, step.logits, step.uncertainty)


def _mask(batch: Batch, rows: Rows) -> NDArray[np.int64]:
    """Return the rows' attention mask, as wide as the longest of them."""
    width = int(batch.attention_mask[rows].sum(axis=1).max())
    return np.ascontiguousarray(batch.attention_mask[rows, :width])
