"""Bounds the messages that arrive at once: the library holds what has come of each."""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import islice
from typing import Final

from serve.runtime.process_memory import give_back_memory

# Memory goes back to the system so long after a message was given up.
_TRIM_AFTER_S: Final = 1.0


class Arrivals:
    """Lets messages arrive in turns. For one event loop.

    A message may arrive once it has a turn. Before that the library holds no more of it than the
    window that every call has. A client has at most half of the turns, and clients that wait get
    theirs one after the other. Half as many turns again are for clients that have none. Where a
    client waits for the turns of others, the oldest turns of the client with the most of them end
    after a while, one for each client that waits. Where it waits for its own turns, as many of
    these end, after a longer while.
    """

    def __init__(self, most: int, grace_s: float, own_grace_s: float) -> None:
        """Take how many messages arrive at once, and how long each may take if others wait.

        Args:
            most: messages that arrive at once.
            grace_s: what each may take while other clients wait.
            own_grace_s: what each may take while others of the same client wait.
        """
        self._most, self._share = most, max(1, most // 2)
        self._grace_s, self._own_grace_s = grace_s, own_grace_s
        self._turns: dict[asyncio.Timeout, tuple[str, float]] = {}  # with client and begin
        self._of_clients: Counter[str] = Counter()  # with those that are about to begin
        self._queues: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._trimming = False

    @asynccontextmanager
    async def turn(self, client: str, end: asyncio.Timeout) -> AsyncIterator[None]:
        """Wait for a turn, and have it until the block is left.

        Args:
            client: the identity of `Client`.
            end: of the block; it is moved if others wait.
        """
        if self._may_begin(client) and client not in self._queues:
            self._of_clients[client] += 1
        else:
            await self._wait(client)
        self._turns[end] = client, asyncio.get_running_loop().time()
        if self._queues:
            self._hurry(client)
        try:
            yield
        except BaseException:
            self._trim_soon()
            raise
        finally:
            del self._turns[end]
            self._end(client)

    def _may_begin(self, client: str) -> bool:
        held, total = self._of_clients[client], self._of_clients.total()
        return held < self._share and total < self._most + (0 if held else self._share)

    async def _wait(self, client: str) -> None:
        begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queues.setdefault(client, deque()).append(begun)
        self._hurry(client)
        try:
            await begun
        except BaseException:
            if begun.done() and not begun.cancelled():
                self._end(client)
            raise

    def _end(self, client: str) -> None:
        """Count a turn out, and let others begin."""
        self._of_clients[client] -= 1
        if not self._of_clients[client]:
            del self._of_clients[client]
        while (following := next(filter(self._may_begin, self._queues), None)) is not None:
            queue = self._queues.pop(following)
            begun = queue.popleft()
            if queue:
                self._queues[following] = queue  # behind the others
            if not begun.done():
                self._of_clients[following] += 1
                begun.set_result(None)

    def _hurry(self, client: str) -> None:
        """Give an end to turns that are in the way of other clients, or of this client's own."""
        [(greedy, most)] = self._of_clients.most_common(1) or [("", 0)]
        lacking = sum(other != greedy and self._lacks(other, most) for other in self._queues)
        self._limit(greedy, lacking, self._grace_s)
        self._limit(client, len(self._queues.get(client, ())), self._own_grace_s)

    def _limit(self, client: str, number: int, grace_s: float) -> None:
        """Give an end to so many of the oldest turns of a client."""
        oldest = (turn for turn in self._turns.items() if turn[1][0] == client)
        for end, (_, began_s) in islice(oldest, number):
            end_s, planned_s = began_s + grace_s, end.when()
            if not end.expired() and (planned_s is None or end_s < planned_s):
                end.reschedule(end_s)

    def _lacks(self, client: str, most: int) -> bool:
        held = self._of_clients[client]
        return not held or held + 1 < most

    def _trim_soon(self) -> None:
        if not self._trimming:
            self._trimming = True
            asyncio.get_running_loop().call_later(_TRIM_AFTER_S, self._trim)

    def _trim(self) -> None:
        self._trimming = False
        give_back_memory()
