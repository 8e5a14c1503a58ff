"""The thread of dry runs: they take seconds of one core, and answers must not wait for them."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final, ParamSpec, TypeVar

from serve.errors import Overloaded

_Given = ParamSpec("_Given")
_Made = TypeVar("_Made")

_RETRY_AFTER_S: Final = 5


class DryRunThread:
    """Runs what dry runs compute, one after the other. Belongs to the event loop."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="dry-run")
        self._last: Future[Any] | None = None
        self._answering = False

    @contextmanager
    def only_one(self) -> Iterator[None]:
        """Inside the block, no other client's dry run begins in this process.

        Raises:
            Overloaded: one is under way, or what one has begun whose client has left.
        """
        if self._answering or not (self._last is None or self._last.done()):
            raise Overloaded("a dry run is under way; send one at a time", _RETRY_AFTER_S)
        self._answering = True
        try:
            yield
        finally:
            self._answering = False

    async def run(
        self, call: Callable[_Given, _Made], *args: _Given.args, **named: _Given.kwargs
    ) -> _Made:
        """Return what a call returns."""
        future = self._pool.submit(call, *args, **named)
        self._last = future
        return await asyncio.wrap_future(future)
