"""A batch on its way through a bundle's graphs, with rows that leave, change places and meet."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from export.checks.samples import Batch
from serve.engine.runner import ModelRunner

Rows = NDArray[np.int64]  # (n,) numbers of rows in a batch


class Reading(NamedTuple):
    """What an exit says of some rows of a batch.

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
    """Run a batch through, as rows run while serving, and yield what every exit says.

    Between two layers rows are reordered and one is dropped; padding shrinks with those left.
    """
    generator = np.random.default_rng(seed)
    return _walk_down(runner, batch, generator)


def _walk_down(
    chain: ModelRunner, batch: Batch, generator: np.random.Generator
) -> Iterator[Reading]:
    rows = np.arange(len(batch.input_ids))
    step = chain.start(*batch)
    yield Reading(0, rows, step.logits, step.uncertainty)
    for index in range(1, len(chain)):
        keep = generator.permutation(len(rows))[: max(1, len(rows) - 1)]
        rows = rows[keep]
        step = chain.advance(index, step.hidden, keep, _mask(batch, rows))
        yield Reading(index, rows, step.logits, step.uncertainty)


def _mask(batch: Batch, rows: Rows) -> NDArray[np.int64]:
    """Return the rows' attention mask, as wide as the longest of them."""
    return np.ascontiguousarray(batch.attention_mask[rows, : _width(batch, rows)])


def _width(batch: Batch, rows: Rows) -> int:
    return int(batch.attention_mask[rows].sum(axis=1).max())
