"""A call that many ask for at once is made once for all of them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

_Result = TypeVar("_Result")


class SharedCall(Generic[_Result]):
    """Makes one call at a time, on the event loop that asks for it.

    Who asks while a call runs gets the result of the next one, with all others who ask meanwhile.
    So every result was made after it was asked for.
    """

    def __init__(self, call: Callable[[], Awaitable[_Result]]) -> None:
        self._call = call
        self._running: asyncio.Task[_Result] | None = None
        self._next: asyncio.Task[_Result] | None = None

    async def __call__(self) -> _Result:
        """Return the result, or raise what the call raises."""
        if self._next is None:
            self._next = asyncio.create_task(self._after(self._running))
        # One who leaves does not end the call of the others.
        return await asyncio.shield(self._next)

    async def _after(self, running: "asyncio.Task[_Result] | None") -> _Result:
        if running is not None:
            await asyncio.wait([running])
        self._running, self._next = self._next, None
        return await self._call()
