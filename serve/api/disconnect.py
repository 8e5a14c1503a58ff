"""Cancels the work for clients that disconnect before they have their answer."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from starlette.types import Receive

Result = TypeVar("Result")

# Most requests are answered sooner. Watching a connection takes a task, which costs as much
# processor time as a short text.
_WATCH_AFTER_S = 0.05


class ClientDisconnected(Exception):
    """The client has disconnected."""


async def cancel_on_disconnect(receive: Receive, work: Coroutine[Any, Any, Result]) -> Result:
    """Return the result of the work, or cancel the work when the client disconnects.

    The connection is watched after `_WATCH_AFTER_S`.

    Args:
        receive: of the request, whose body has been read.
        work: what answers the request.

    Raises:
        ClientDisconnected: the client has left, and the work was cancelled.
        CancelledError: the calling task was cancelled, and the work with it.
    """
    watch = _DisconnectWatch(receive)
    timer = asyncio.get_running_loop().call_later(_WATCH_AFTER_S, watch.start)
    try:
        return await work
    except asyncio.CancelledError:
        if watch.caused_cancellation():
            raise ClientDisconnected from None
        raise
    finally:
        timer.cancel()
        watch.stop()


class _DisconnectWatch:
    """Cancels the task that has made it when the client disconnects."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._working = asyncio.current_task()
        self._watching: asyncio.Task[None] | None = None
        self._disconnected = False

    def start(self) -> None:
        self._watching = asyncio.ensure_future(self._cancel_on_disconnect())

    def stop(self) -> None:
        """Stop watching; nothing is cancelled afterwards."""
        self._working = None
        if self._watching:
            self._watching.cancel()

    def caused_cancellation(self) -> bool:
        """Tell whether this watch has cancelled the task, and nothing else has."""
        return self._disconnected and self._working is not None and not self._working.uncancel()

    async def _cancel_on_disconnect(self) -> None:
        with suppress(Exception):  # a connection that fails to answer is a client that has left
            while (await self._receive())["type"] != "http.disconnect":
                pass
        if self._working:
            self._disconnected = True
            self._working.cancel()
