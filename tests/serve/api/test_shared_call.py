import asyncio

import pytest

from serve.api.replicas import SharedCall


class Counting:
    """A call that waits until it may end; it returns how many calls there were before its end."""

    def __init__(self) -> None:
        self.made = self.at_once = self.most = 0
        self.may_end = asyncio.Event()

    async def __call__(self) -> int:
        self.made, self.at_once = self.made + 1, self.at_once + 1
        self.most = max(self.most, self.at_once)
        number = self.made
        await self.may_end.wait()
        self.at_once -= 1
        return number


def test_all_who_ask_while_a_call_runs_share_the_next_one() -> None:
    async def asked() -> tuple[list[int], Counting]:
        counting = Counting()
        shared = SharedCall(counting)
        first = asyncio.create_task(shared())
        while not counting.made:
            await asyncio.sleep(0)
        rest = [asyncio.create_task(shared()) for _ in range(50)]
        left = asyncio.create_task(shared())
        await asyncio.sleep(0)
        left.cancel()
        counting.may_end.set()
        return await asyncio.gather(first, *rest), counting

    numbers, counting = asyncio.run(asked())
    assert numbers == [1] + [2] * 50
    assert (counting.made, counting.most) == (2, 1)


def test_after_a_call_there_is_a_rest_for_other_work() -> None:
    async def asked() -> list[int]:
        made: list[int] = []

        async def call() -> int:
            made.append(await asyncio.sleep(0.2, len(made)))
            return len(made)

        shared = SharedCall(call)
        await shared()
        second = asyncio.create_task(shared())
        await asyncio.sleep(0.3)  # longer than the call itself takes
        return [len(made), await second]

    assert asyncio.run(asked()) == [1, 2]


def test_an_error_reaches_all_who_asked_and_the_next_call_is_made() -> None:
    async def asked() -> int:
        fails = iter([True, False])

        async def call() -> int:
            if next(fails):
                raise ValueError("once")
            return 7

        shared = SharedCall(call)
        both = await asyncio.gather(shared(), shared(), return_exceptions=True)
        assert [type(each) for each in both] == [ValueError] * 2
        return await shared()

    assert asyncio.run(asked()) == 7


def test_the_call_goes_on_when_the_only_one_who_asked_leaves() -> None:
    async def asked() -> int:
        counting = Counting()
        shared = SharedCall(counting)
        task = asyncio.create_task(shared())
        while not counting.made:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        counting.may_end.set()
        return await shared()

    assert asyncio.run(asked()) == 2
