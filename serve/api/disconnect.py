"""Clients that leave before they have their answer."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from starlette.types import Receive

Answered = TypeVar("Answered")

# Most answers are out by then; to watch a connection takes a task, as long as a short text takes.
_UNWATCHED_S = 0.05


class ClientLeft(Exception):
    """The client has disconnected."""


async def unless_client_leaves(receive: Receive, work: Coroutine[Any, Any, Answered]) -> Answered:
    """Return what the work returns, or cancel it when the client disconnects.

    Looked at after `_UNWATCHED_S`.

    Args:
        receive: of the request, whose body has been read.
        work: for it.

    Raises:
        ClientLeft: the work has been cancelled.
        CancelledError: this call has been, and the work too.
    """
    departure = _Departure(receive)
    later = asyncio.get_running_loop().call_later(_UNWATCHED_S, departure.watch)
    try:
        return await work
    except asyncio.CancelledError:
        if departure.meant():
            raise ClientLeft from None
        raise
    finally:
        later.cancel()
        departure.ignore()


class _Departure:
    """Cancels the task that has made it, once its client leaves."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._working = asyncio.current_task()
        self._watching: asyncio.Task[None] | None = None
        self._left = False

    def watch(self) -> None:
        """Begin to look out for it."""
        self._watching = asyncio.ensure_future(self._disconnect())

    def ignore(self) -> None:
        """Look no more; nothing is cancelled from now on."""
        self._working = None
        if self._watching:
            self._watching.cancel()

    def meant(self) -> bool:
        """Tell whether it is why the task has been cancelled, and nobody else has done so."""
        return self._left and self._working is not None and not self._working.uncancel()

    async def _disconnect(self) -> None:
        with suppress(Exception):  # it cannot be told any more: then nobody is there
            while (await self._receive())["type"] != "http.disconnect":
                pass
        if self._working:
            self._left = True
            self._working.cancel()
