import asyncio

import numpy as np
import pytest
from numpy.typing import NDArray

from loadtest.compare.servers import LIMITS, Batcher


def test_every_text_gets_its_own_answer_from_few_batches() -> None:
    sizes = []

    def run(batch: list[list[int]]) -> NDArray[np.float32]:
        sizes.append(len(batch))
        return np.array([[ids[0], 0] for ids in batch], np.float32)

    async def ask() -> list[float]:
        batcher = Batcher(run)
        rows = await asyncio.gather(*(batcher.logits([number] * 5) for number in range(40)))
        return [float(row[0]) for row in rows]

    assert asyncio.run(ask()) == list(range(40))
    assert sizes == [LIMITS.max_rows, 8]


def test_failing_batch_fails_its_requests_and_no_others() -> None:
    def run(batch: list[list[int]]) -> NDArray[np.float32]:
        if batch[0][0] == 0:
            raise RuntimeError("out of memory")
        return np.ones((len(batch), 2), np.float32)

    async def ask() -> None:
        batcher = Batcher(run)
        with pytest.raises(RuntimeError, match="out of memory"):
            await batcher.logits([0])
        assert (await batcher.logits([1])).tolist() == [1, 1]

    asyncio.run(ask())
