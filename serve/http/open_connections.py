"""Keeps connections from taking the server: how many there are, and how long each may wait."""

import asyncio
import logging
import math
import resource
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from typing import Final, Protocol

from serve.http.settings import Closed, ConnectionLimits, ConnectionState

log = logging.getLogger(__name__)

SWEEP_EVERY_S: Final = 1.0
# File descriptors for everything that is no connection: models, logs, Ray.
RESERVED_DESCRIPTORS: Final = 256
# Connections that are looked at in a row, before the event loop does other work.
_AT_ONCE = 16


class Watched(Hashable, Protocol):
    """A connection, as `OpenConnections` sees it."""

    def sweep(self, now_s: float) -> None:
        """Close the connection if it is overdue."""

    def shutdown(self) -> None:
        """Close the connection, after the request that it has or is being sent."""

    def abort(self) -> None:
        """Close the connection at once."""


class OpenConnections:
    """Closes connections that are overdue, and makes room for new ones.

    Belongs to the event loop. A look at every connection each second costs less than timers that
    every request would set and cancel.

    Attributes:
        limits: bounds on the connections; their number never exceeds what file descriptors allow.
        state: counts what is open, and what was closed.
        now_s: time that this process has had for its connections, in seconds. A pause in which
            the server read nothing counts against no client.
    """

    def __init__(self, limits: ConnectionLimits, state: ConnectionState) -> None:
        """Raise the limit of file descriptors if the connections need it."""
        num_connections = connections_that_fit(limits.max_connections)
        self.limits = replace(limits, max_connections=num_connections)
        self.state = state
        self.now_s = 0.0
        self._watched: set[Watched] = set()
        # Without a complete head, the longest wait first, and how each is closed.
        self._waiting: OrderedDict[Watched, Callable[[], object]] = OrderedDict()

    def __iter__(self) -> Iterator[Watched]:
        """Return those that are open now."""
        return iter(tuple(self._watched))

    def watch(self, connection: Watched, cancel: Callable[[], object]) -> None:
        """Look after a connection from now on.

        Args:
            connection: just accepted, perhaps with a TLS handshake to come.
            cancel: closes it until it `waits`.
        """
        self._watched.add(connection)
        self._waiting[connection] = cancel
        self.state.num_open = len(self._watched)

    def forget(self, connection: Watched) -> None:
        """Stop looking after a connection."""
        self._watched.discard(connection)
        self._waiting.pop(connection, None)
        self.state.num_open = len(self._watched)

    def waits(self, connection: Watched) -> None:
        """Note that a connection has no complete head; it keeps its place if that was known."""
        self._waiting[connection] = connection.abort

    def works(self, connection: Watched) -> None:
        """Note that a connection has a request."""
        self._waiting.pop(connection, None)

    def admits_one(self) -> bool:
        """Tell whether there is room for one more; if need be, close what waits longest."""
        if self.state.num_open < self.limits.max_connections:
            return True
        if not self._waiting:
            self.state.closed[Closed.REFUSED] += 1
            return False
        _, close = self._waiting.popitem(last=False)
        self.state.closed[Closed.LIMIT] += 1
        close()
        return True

    async def run(self) -> None:
        """Look at every connection about once in `SWEEP_EVERY_S`, until cancelled.

        The looks are spread over that time. Hundreds of connections may be overdue in the same
        second, and closing them in a row would keep requests waiting.
        """
        clock = asyncio.get_running_loop().time
        last_s = clock()
        while True:
            watched = tuple(self._watched)
            num_turns = max(1, math.ceil(len(watched) / _AT_ONCE))
            for turn in range(num_turns):
                await asyncio.sleep(SWEEP_EVERY_S / num_turns)
                self.now_s += min(clock() - last_s, 2 * SWEEP_EVERY_S)
                last_s = clock()
                self._sweep(watched[turn * _AT_ONCE : (turn + 1) * _AT_ONCE])

    def _sweep(self, connections: Sequence[Watched]) -> None:
        for connection in connections:
            if connection not in self._watched:
                continue  # it has ended in the meantime
            try:
                connection.sweep(self.now_s)
            except Exception:
                log.exception("a connection could not be looked at")


def connections_that_fit(wanted: int) -> int:
    """Return how many connections this process may have; raise its soft limit if needed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + RESERVED_DESCRIPTORS
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return wanted
    soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return min(wanted, max(soft - RESERVED_DESCRIPTORS, soft // 2))
