"""Threads for what policies wait for: their store, and dry runs.

The store may be a network away and not answer, and a dry run takes seconds of one core. The threads
are few and of their own: threads that answers use must wait for neither.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final, ParamSpec, TypeVar

from serve.errors import Overloaded

_Given = ParamSpec("_Given")
_Made = TypeVar("_Made")

_NUM_THREADS: Final = 4
# Changes that run or wait; each takes some seconds at most.
_MOST_CHANGES: Final = 2 * _NUM_THREADS
_RETRY_AFTER_S: Final = 2
_RETRY_DRY_RUN_S: Final = 5


class _Threads:
    """Runs calls on threads. Belongs to the event loop."""

    def __init__(self, number: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(number, thread_name_prefix=name)
        self._last: Future[Any] | None = None

    async def run(
        self, call: Callable[_Given, _Made], *args: _Given.args, **named: _Given.kwargs
    ) -> _Made:
        """Return what a call returns."""
        future = self._pool.submit(call, *args, **named)
        self._last = future
        return await asyncio.wrap_future(future)


class PolicyThreads(_Threads):
    """Runs calls to live policies that may wait for their store."""

    def __init__(self) -> None:
        super().__init__(_NUM_THREADS, "policies")
        self._back = _Threads(1, "policies-back")
        self._waiting = Counter[bool]()

    async def change(self, call: Callable[[], _Made], back: bool = False) -> _Made:
        """Return what a client's call returns.

        Args:
            call: makes the change.
            back: whether it goes back to what was before, for which other changes leave a thread.

        Raises:
            Overloaded: too many of them wait already.
        """
        if self._waiting[back] >= _MOST_CHANGES:
            raise Overloaded("too many changes of policies wait already; try again", _RETRY_AFTER_S)
        self._waiting[back] += 1
        try:
            return await (self._back if back else self).run(call)
        finally:
            self._waiting[back] -= 1


class DryRunThread(_Threads):
    """Runs what dry runs compute, one after the other."""

    def __init__(self) -> None:
        super().__init__(1, "dry-run")
        self._answering = False

    @contextmanager
    def only_one(self) -> Iterator[None]:
        """Inside the block, no other client's dry run begins in this process.

        Raises:
            Overloaded: one is under way, or what one has begun whose client has left.
        """
        if self._answering or not (self._last is None or self._last.done()):
            raise Overloaded("a dry run is under way; send one at a time", _RETRY_DRY_RUN_S)
        self._answering = True
        try:
            yield
        finally:
            self._answering = False
