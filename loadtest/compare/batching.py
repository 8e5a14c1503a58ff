"""Dynamic batching as a good server without early exit does it.

While the model works, requests gather; the next batch is the oldest of them with those nearest to
it in length. Only when the model was idle does the first request wait, and briefly.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

WINDOW_S = 0.001
MOST_ROWS = 32
# Longest over shortest text of a batch; bounds padding.
MOST_STRETCH = 1.5

Ids: TypeAlias = list[int]
RunBatch: TypeAlias = Callable[[list[Ids]], NDArray[np.float32]]


def choose(lengths: Sequence[int]) -> list[int]:
    """Return the places of the next batch among the waiting: the first, and its like."""
    order = sorted(range(len(lengths)), key=lambda place: abs(lengths[place] - lengths[0]))
    chosen: list[int] = []
    shortest = longest = lengths[0]
    for place in order[:MOST_ROWS]:
        shortest, longest = min(shortest, lengths[place]), max(longest, lengths[place])
        if longest > MOST_STRETCH * shortest:
            break
        chosen.append(place)
    return chosen


class Batcher:
    """Runs batches one after the other, in a thread of their own."""

    def __init__(self, run: RunBatch) -> None:
        """Take a function from the ids of some texts to their logits, (rows, labels)."""
        self._run = run
        self._thread = ThreadPoolExecutor(1)
        self._waiting: list[tuple[Ids, asyncio.Future[NDArray[np.float32]]]] = []
        self._arrived = asyncio.Event()
        self._loop: asyncio.Task[None] | None = None

    async def logits(self, ids: Ids) -> NDArray[np.float32]:
        """Return the logits of one text, (labels,)."""
        if self._loop is None:
            self._loop = asyncio.create_task(self._work())
        answer: asyncio.Future[NDArray[np.float32]] = asyncio.get_running_loop().create_future()
        self._waiting.append((ids, answer))
        self._arrived.set()
        return await answer

    async def _work(self) -> None:
        while True:
            if not self._waiting:
                self._arrived.clear()
                await self._arrived.wait()
                await asyncio.sleep(WINDOW_S)
            await self._one_batch()

    async def _one_batch(self) -> None:
        chosen = set(choose([len(ids) for ids, _ in self._waiting]))
        batch = [item for place, item in enumerate(self._waiting) if place in chosen]
        self._waiting = [i for place, i in enumerate(self._waiting) if place not in chosen]
        loop = asyncio.get_running_loop()
        try:
            rows = await loop.run_in_executor(self._thread, self._run, [ids for ids, _ in batch])
        except Exception as error:
            for _, answer in batch:
                answer.set_exception(error)
            return
        for (_, answer), row in zip(batch, rows, strict=True):
            if not answer.cancelled():
                answer.set_result(row)
