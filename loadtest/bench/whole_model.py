"""The contender: dynamic batching over the whole model, as a server without early exit does it.

It is given what the engine has: the same requests, the same window of waiting ones, the same
bounds on a batch. And what helps it: it never waits, always takes the best fit, and has neither
threads nor rules to look after.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from loadtest.bench.one_graph_session import OneGraph
from serve.bundle.manifest import ATTENTION_MASK, INPUT_IDS, TOKEN_TYPE_IDS
from serve.engine.scheduler import BatchLimits

# Longest over shortest text of a batch; bounds padding.
_MAX_STRETCH = 1.5

Ids = NDArray[np.int64]  # (tokens,)


def full_batches(
    lengths: NDArray[np.int64], window: int, limits: BatchLimits
) -> Iterator[NDArray[np.intp]]:
    """Yield the requests of one batch after another, every request once.

    The oldest goes first, with those nearest to it in length among the ones that wait; as many
    as the limits allow.

    Args:
        lengths: (requests,) tokens, in order of arrival.
        window: how many wait at a time, while there are so many.
        limits: bounds on a batch.
    """
    waiting = np.arange(0, dtype=np.intp)
    arrived = 0
    while len(waiting) or arrived < len(lengths):
        new = np.arange(arrived, min(len(lengths), arrived + window - len(waiting)))
        arrived += len(new)
        waiting = np.concatenate([waiting, new])
        chosen = _nearest(lengths[waiting], limits)
        yield waiting[chosen]
        waiting = np.delete(waiting, chosen)


def _nearest(lengths: NDArray[np.int64], limits: BatchLimits) -> NDArray[np.intp]:
    """Return the places of the first and of those like it in length, as many as fit."""
    order = np.argsort(np.abs(lengths - lengths[0]), kind="stable")[: limits.max_rows]
    longest = np.maximum.accumulate(lengths[order])
    shortest = np.minimum.accumulate(lengths[order])
    sizes = 1 + np.arange(len(order))
    fits = (sizes * longest <= limits.max_tokens) & (longest <= shortest * _MAX_STRETCH)
    fits[0] = True
    return order[: len(fits) if fits.all() else int(np.argmin(fits))]


def answer_all(
    one_graph: OneGraph, requests: Sequence[Ids], window: int, limits: BatchLimits, pad_id: int
) -> list[int]:
    """Run every request through the whole model and return their labels, in order."""
    lengths = np.array([len(ids) for ids in requests])
    labels = np.full(len(requests), -1)
    for batch in full_batches(lengths, window, limits):
        logits = one_graph.run(_padded([requests[i] for i in batch], pad_id))
        labels[batch] = logits.argmax(axis=1)
    found: list[int] = labels.tolist()
    return found


def _padded(batch: Sequence[Ids], pad_id: int) -> dict[str, NDArray[np.int64]]:
    lengths = np.array([len(ids) for ids in batch])
    mask = (np.arange(lengths.max()) < lengths[:, None]).astype(np.int64)
    ids = np.full(mask.shape, pad_id, np.int64)
    for place, row in enumerate(batch):
        ids[place, : len(row)] = row
    return {INPUT_IDS: ids, ATTENTION_MASK: mask, TOKEN_TYPE_IDS: np.zeros_like(ids)}
