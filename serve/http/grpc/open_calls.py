"""Bounds calls that are open at once, so that no client keeps the others out."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from serve.access.held_bytes import RETRY_AFTER_S
from serve.errors import Overloaded


class OpenCalls:
    """Counts calls until their clients have taken the answers. For one event loop.

    A client may have as many as it leaves free. One that wants more loses the call that has waited
    longest for its message; so does the client with the most calls where there is no room at all.
    Only if none waits, the new call is refused.
    """

    def __init__(self, most: int) -> None:
        """Take the most calls that are open at once."""
        self._most, self._num_open = most, 0
        self._of_clients: Counter[str] = Counter()
        # Ends of the waits for messages, the longest wait first.
        self._waits: defaultdict[str, dict[asyncio.Timeout, None]] = defaultdict(dict)

    def enter(self, client: str) -> None:
        """Count a call in.

        Raises:
            Overloaded: there is no room for it.
        """
        if self._of_clients[client] >= self._most - self._num_open:
            self._make_room(client)
        self._of_clients[client] += 1
        self._num_open += 1

    def leave(self, client: str) -> None:
        """Count a call out."""
        self._num_open -= 1
        self._of_clients[client] -= 1
        if not self._of_clients[client]:
            del self._of_clients[client]

    @contextmanager
    def waiting(self, client: str, end: asyncio.Timeout) -> Iterator[None]:
        """Note that a call waits for its client, and may be ended to make room for others."""
        self._waits[client][end] = None
        try:
            yield
        finally:
            self._waits[client].pop(end, None)
            if not self._waits[client]:
                del self._waits[client]

    def _make_room(self, client: str) -> None:
        if self._num_open >= self._most:
            [(client, _)] = self._of_clients.most_common(1)
        waits = self._waits.get(client)
        if not waits:
            raise Overloaded("the server has too many open calls; try again", RETRY_AFTER_S)
        end = next(iter(waits))
        del waits[end]
        if not end.expired():
            end.reschedule(asyncio.get_running_loop().time())
