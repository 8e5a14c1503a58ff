"""Dynamic batching in a server without early exit.

Requests gather while the model works. `loadtest.bench.whole_model` chooses the next batch. Only
when the model was idle does the first request wait, for one millisecond.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from loadtest.bench.whole_model import next_batch
from serve.engine.scheduler import BatchLimits

WINDOW_S = 0.001
LIMITS = BatchLimits(max_rows=32, max_tokens=32 * 512)

Ids: TypeAlias = list[int]
RunBatch: TypeAlias = Callable[[list[Ids]], NDArray[np.float32]]


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
        lengths = np.array([len(ids) for ids, _ in self._waiting])
        chosen = set(next_batch(lengths, LIMITS).tolist())
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
