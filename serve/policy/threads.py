"""Threads for what waits for the store of policies, which may be a network away and not answer.

They are few and of their own: threads that answers use must not wait for a store.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, ParamSpec, TypeVar

from serve.errors import Overloaded

_Given = ParamSpec("_Given")
_Made = TypeVar("_Made")

_NUM_THREADS: Final = 4
# Changes that run or wait; each takes some seconds at most.
_MOST_CHANGES: Final = 2 * _NUM_THREADS
_RETRY_AFTER_S: Final = 2


class PolicyThreads:
    """Runs calls to live policies that may wait for their store. Belongs to the event loop."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="policies")
        self._num_changes = 0

    async def run(
        self, call: Callable[_Given, _Made], *args: _Given.args, **named: _Given.kwargs
    ) -> _Made:
        """Return what a call returns."""
        return await asyncio.wrap_future(self._pool.submit(call, *args, **named))

    async def change(self, call: Callable[[], _Made]) -> _Made:
        """Return what a client's call returns.

        Raises:
            Overloaded: too many of them wait already.
        """
        if self._num_changes >= _MOST_CHANGES:
            raise Overloaded("too many changes of policies wait already; try again", _RETRY_AFTER_S)
        self._num_changes += 1
        try:
            return await self.run(call)
        finally:
            self._num_changes -= 1
