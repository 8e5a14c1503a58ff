"""Reads the messages of calls, within bounds of size, time and number."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

from serve.access.held_bytes import FREE_BYTES
from serve.config import ConnectionLimits, WebLimits
from serve.errors import BodyTooLarge, RequestTimeout
from serve.http.grpc.arrivals import Arrivals
from serve.http.grpc.status import MalformedMessage

# What the library holds of a call whose message has no turn to arrive.
WINDOW_BYTES: Final = FREE_BYTES
# A message of a call that needs no key holds a name at most, and must come at once.
_MAX_PROBE_BYTES: Final = 4096
_PROBE_TIMEOUT_S: Final = 1.0
# The library bounds messages only by `max_body_bytes`, those of calls without a key too.
_MAX_PROBES_ARRIVING: Final = 32
# What a message may take to arrive while other clients wait for its turn, and while other messages
# of its own client do: twelve of 2 MB need so long over a line of 20 Mbit/s.
_PROBE_GRACE_S: Final = 0.05
_GRACE_S: Final = 1.0
_OWN_GRACE_S: Final = 10.0


def _not_noted(end: asyncio.Timeout) -> AbstractContextManager[None]:
    return nullcontext()


class Reader:
    """Reads messages. Belongs to the event loop."""

    def __init__(self, bounds: WebLimits, limits: ConnectionLimits) -> None:
        """Read messages within these bounds; together those that arrive take as much as bodies."""
        self._max_bytes = bounds.max_body_bytes
        self._timeout_s = limits.body_timeout_s
        most = max(2, bounds.max_buffered_bytes // bounds.max_body_bytes)
        self._arriving = Arrivals(most, _GRACE_S, _OWN_GRACE_S)
        self._probes_arriving = Arrivals(_MAX_PROBES_ARRIVING, _PROBE_GRACE_S, _PROBE_GRACE_S)

    async def read(
        self,
        rpc: Any,
        client: str,
        probe: bool,
        waiting: Callable[[asyncio.Timeout], AbstractContextManager[None]] = _not_noted,
    ) -> bytes:
        """Return the next message of a call, which of a probe must come at once.

        While it is to come, the end of the wait is given to `waiting`.

        Raises:
            OfframpError: it comes too slowly, is none or is too large.
        """
        arriving = self._probes_arriving if probe else self._arriving
        most = _MAX_PROBE_BYTES if probe else self._max_bytes
        limit_s = min(_PROBE_TIMEOUT_S, self._timeout_s) if probe else self._timeout_s
        try:
            async with asyncio.timeout(limit_s) as end:
                with waiting(end):
                    async with arriving.turn(client, end):
                        data = await _next(rpc, most)
        except TimeoutError:
            raise RequestTimeout("the message came too slowly") from None
        if data is None:
            raise MalformedMessage("the call has no message")
        return data

    async def stream(self, rpc: Any, client: str) -> AsyncIterator[bytes]:
        """Yield the messages of a stream that needs no key, however late they come.

        Raises:
            TimeoutError: others wait, and the message does not come.
            BodyTooLarge: a message is too large.
        """
        while True:
            async with asyncio.timeout(None) as end, self._probes_arriving.turn(client, end):
                data = await _next(rpc, _MAX_PROBE_BYTES)
            if data is None:
                return
            yield data


async def _next(rpc: Any, most: int) -> bytes | None:
    data = await rpc.read()
    if not isinstance(data, bytes):
        return None
    if len(data) > most:
        raise BodyTooLarge(f"the message is larger than {most} bytes; send less")
    return data
