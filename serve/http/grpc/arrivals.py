"""Reads the messages of calls, within bounds of size, time and number."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from itertools import islice
from typing import Any, Final
from weakref import WeakValueDictionary

from serve.access.held_bytes import FREE_BYTES
from serve.config import WebLimits
from serve.errors import BodyTooLarge, RequestTimeout
from serve.http.grpc.status import MalformedMessage
from serve.http.settings import ConnectionLimits

# The library holds this much of a call whose message has no turn to arrive.
WINDOW_BYTES: Final = FREE_BYTES
# A message of a call that needs no key holds a name at most, and must come at once.
_MAX_PROBE_BYTES: Final = 4096
_PROBE_TIMEOUT_S: Final = 1.0
# The library bounds messages only by `max_body_bytes`, those of calls without a key too.
_MAX_PROBES_ARRIVING: Final = 32
# A message may take so long to arrive while other clients wait for its turn, and while other
# messages of its own client do: twelve of 2 MB take ten seconds over a line of 20 Mbit/s.
_PROBE_GRACE_S: Final = 0.05
_GRACE_S: Final = 1.0
_OWN_GRACE_S: Final = 10.0


class Arrivals:
    """Lets messages arrive in turns. For one event loop.

    Of a message with a turn, the library holds all that has come; of another one, no more than the
    window of its call. A client has at most half of the turns. If more messages of a client wait,
    as many of its oldest turns get an end. If other clients wait for room, the client with the most
    turns loses the oldest one for each of them.
    """

    def __init__(self, most: int, grace_s: float, own_grace_s: float) -> None:
        """Take how many messages arrive at once, and how long each may take if others wait.

        Args:
            most: messages that arrive at once.
            grace_s: the time that a message may take while other clients wait.
            own_grace_s: the time that it may take while others of its client wait.
        """
        self._room, self._share = asyncio.Semaphore(most), max(1, most // 2)
        self._grace_s, self._own_grace_s = grace_s, own_grace_s
        self._shares = WeakValueDictionary[str, asyncio.Semaphore]()
        self._waiting: Counter[str] = Counter()
        self._turns: dict[asyncio.Timeout, tuple[str, float]] = {}  # with client and begin

    @asynccontextmanager
    async def turn(self, client: str, end: asyncio.Timeout) -> AsyncIterator[None]:
        """Wait for a turn, and have it until the block is left.

        Args:
            client: the identity of `Client`.
            end: the time limit of the block; it is moved if others wait.
        """
        share = self._shares.setdefault(client, asyncio.Semaphore(self._share))
        async with AsyncExitStack() as taken:
            self._waiting[client] += 1
            try:
                self._hurry()
                await taken.enter_async_context(share)
                await taken.enter_async_context(self._room)
            finally:
                self._waiting[client] -= 1
            self._turns[end] = client, asyncio.get_running_loop().time()
            try:
                self._waiting = +self._waiting  # without the clients of which none waits
                self._hurry()
                yield
            finally:
                del self._turns[end]

    def _hurry(self) -> None:
        """Give an end to the turns that are in the way of messages."""
        held = Counter(client for client, _ in self._turns.values())
        greedy = max(held, key=held.__getitem__, default="")
        lacking = 0
        for client, number in self._waiting.items():
            if held[client] >= self._share:
                self._limit(client, number, self._own_grace_s)
            elif number and (not held[client] or held[client] + 1 < held[greedy]):
                lacking += 1
        if self._room.locked():
            self._limit(greedy, lacking, self._grace_s)

    def _limit(self, client: str, number: int, grace_s: float) -> None:
        """Give an end to so many of the oldest turns of a client."""
        oldest = (turn for turn in self._turns.items() if turn[1][0] == client)
        for end, (_, began_s) in islice(oldest, number):
            end_s, planned_s = began_s + grace_s, end.when()
            if not end.expired() and (planned_s is None or end_s < planned_s):
                end.reschedule(end_s)


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
