"""The whole model in dynamic batches, as a server without early exit runs it.

The next batch is the oldest waiting request with those nearest to it in length. The engine's
benchmark and `python -m loadtest.benchmarks` batch alike by this file.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from loadtest.bench.inputs import Ids, Inputs, padded
from serve.engine.scheduler import BatchLimits
from serve.runtime.ort_session import RUN_OPTIONS, quick_run

Answer: TypeAlias = Callable[[Inputs], NDArray[np.float32]]

# Longest over shortest text of a batch; bounds padding.
_MAX_STRETCH = 1.5


def next_batch(lengths: NDArray[np.int64], limits: BatchLimits) -> NDArray[np.intp]:
    """Return the places of the first request and of those nearest to it in length.

    Args:
        lengths: (waiting,) tokens of each waiting request, oldest first.
        limits: bounds on the batch; a single request is taken however long.
    """
    order = np.argsort(np.abs(lengths - lengths[0]), kind="stable")[: limits.max_rows]
    longest = np.maximum.accumulate(lengths[order])
    shortest = np.minimum.accumulate(lengths[order])
    sizes = 1 + np.arange(len(order))
    fits = (sizes * longest <= limits.max_tokens) & (longest <= shortest * _MAX_STRETCH)
    fits[0] = True
    return order[: len(fits) if fits.all() else int(np.argmin(fits))]


def full_batches(
    lengths: NDArray[np.int64], window: int, limits: BatchLimits
) -> Iterator[NDArray[np.intp]]:
    """Yield the requests of one batch after another; every request is in one batch.

    Args:
        lengths: (requests,) tokens, in order of arrival.
        window: how many requests wait at a time, while so many are left.
        limits: bounds on a batch.
    """
    waiting = np.arange(0, dtype=np.intp)
    arrived = 0
    while len(waiting) or arrived < len(lengths):
        new = np.arange(arrived, min(len(lengths), arrived + window - len(waiting)))
        arrived += len(new)
        waiting = np.concatenate([waiting, new])
        chosen = next_batch(lengths[waiting], limits)
        yield waiting[chosen]
        waiting = np.delete(waiting, chosen)


def answer_all(
    run: Answer, requests: Sequence[Ids], window: int, limits: BatchLimits, pad_id: int
) -> list[int]:
    """Run every request through the whole model and return their labels, in order.

    Args:
        run: returns the (rows, labels) logits of a batch, on the host.
        requests: token ids.
        window: how many requests wait at a time.
        limits: bounds on a batch.
        pad_id: fills shorter rows.

    This contender gets every advantage: it never waits, and it has neither threads nor rules.
    """
    lengths = np.array([len(ids) for ids in requests])
    labels = np.full(len(requests), -1)
    for batch in full_batches(lengths, window, limits):
        logits = run(padded([requests[i] for i in batch], pad_id))
        labels[batch] = logits.argmax(axis=1)
    found: list[int] = labels.tolist()
    return found


class OneGraph:
    """The file that `loadtest.bench.one_graph` writes, in a session on the CPU."""

    def __init__(self, path: Path, options: ort.SessionOptions) -> None:
        session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self._inputs = [value.name for value in session.get_inputs()]
        self._outputs = [session.get_outputs()[0].name]
        self._run = quick_run(session)

    def run(self, inputs: Inputs) -> NDArray[np.float32]:
        """Return (rows, labels) logits on the host, by a call as the CPU runner makes it."""
        named = inputs._asdict()
        logits: NDArray[np.float32]
        (logits,) = self._run(
            self._outputs, {name: named[name] for name in self._inputs}, RUN_OPTIONS
        )
        return logits
