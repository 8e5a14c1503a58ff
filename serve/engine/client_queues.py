"""Waiting rows by client, merged so that busy clients share the machine evenly.

Each client's rows stay in the order of their ranks. Between clients, the next row of a client that
has been served counts as having come when its last ones would be done on an even share of the
machine (Virtual Clock, Zhang 1990, with the share of the clients that wait now). The few rows of
one client then go before the many of another, whose rows may have come earlier. A client that is
alone gets the whole machine and no debt; one with nothing waiting is forgotten.
"""

from bisect import insort
from collections.abc import Iterable
from heapq import heapify, heappop, heapreplace
from operator import attrgetter
from typing import NamedTuple

from serve.engine.row import Row

# A client's next row counts as come at most so much later than now. A client that has had more
# than its share, or rows that took less time than estimated, then waits for a new one no longer.
MAX_DEBT_S = 2.0

_BY_RANK = attrgetter("rank")


class Waiting(NamedTuple):
    """A row that waits.

    Attributes:
        rank: when it counts as come, seconds.
        late_s: the part of `rank` that comes from the priority.
        cost_s: time of the row on the whole machine.
        row: itself.
    """

    rank: float
    late_s: float
    cost_s: float
    row: Row


class _Client:
    def __init__(self) -> None:
        self.waiting: list[Waiting] = []  # by rank
        self.next_s = 0.0  # its next row counts as come no earlier


class ClientQueues:
    """The waiting rows of all clients."""

    def __init__(self) -> None:
        """Start empty."""
        self._clients: dict[str, _Client] = {}
        self._num_rows = 0

    def __len__(self) -> int:
        return self._num_rows

    @property
    def rows(self) -> list[Row]:
        """All of them, client by client."""
        return [entry.row for client in self._clients.values() for entry in client.waiting]

    def add(self, entry: Waiting) -> None:
        """Take in a row."""
        client = self._clients.get(entry.row.client)
        if client is None:
            client = self._clients[entry.row.client] = _Client()
        waiting = client.waiting
        if waiting and entry.rank < waiting[-1].rank:
            insort(waiting, entry, key=_BY_RANK)
        else:
            waiting.append(entry)
        self._num_rows += 1

    def first(self) -> Row:
        """Return the row that may start next."""
        clients = self._clients.values()
        heads = [(_come_s(c.waiting[0], c.next_s), c.waiting[0].rank, c) for c in clients]
        return min(heads, key=lambda head: head[:2])[2].waiting[0].row

    def head(self, most: int, now_s: float) -> list[Waiting]:
        """Return the rows that may start next, at most so many, in order."""
        if len(self._clients) == 1:
            (only,) = self._clients.values()
            return only.waiting[:most]
        heads = [
            (_come_s(c.waiting[0], c.next_s), c.waiting[0].rank, i, 0, c.next_s, c.waiting)
            for i, c in enumerate(self._clients.values())
        ]
        heapify(heads)
        merged: list[Waiting] = []
        while heads and len(merged) < most:
            _, _, i, place, next_s, waiting = heads[0]
            merged.append(waiting[place])
            if place + 1 == len(waiting):
                heappop(heads)
                continue
            next_s = self._after(waiting[place].cost_s, next_s, now_s)
            entry = waiting[place + 1]
            heapreplace(heads, (_come_s(entry, next_s), entry.rank, i, place + 1, next_s, waiting))
        return merged

    def take(self, entries: list[Waiting], now_s: float) -> None:
        """Remove rows that start now, and note what their clients have had."""
        if len(self._clients) == 1:
            self._clients[entries[0].row.client].next_s = now_s  # no debt while it is alone
        cost_s: dict[str, float] = {}
        for entry in entries:
            cost_s[entry.row.client] = cost_s.get(entry.row.client, 0.0) + entry.cost_s
        for name, each_s in cost_s.items():
            client = self._clients[name]
            client.next_s = self._after(each_s, client.next_s, now_s)
        self.remove([entry.row for entry in entries])

    def remove(self, rows: Iterable[Row]) -> None:
        """Remove waiting rows."""
        gone = set(rows)
        self._num_rows -= len(gone)
        for name in {row.client for row in gone}:
            client = self._clients[name]
            client.waiting = [entry for entry in client.waiting if entry.row not in gone]
            if not client.waiting:
                del self._clients[name]

    def _after(self, cost_s: float, next_s: float, now_s: float) -> float:
        """Return when a client's row counts as come after rows of its own that cost so much."""
        share_s = cost_s * len(self._clients)
        return min(max(next_s, now_s) + share_s, now_s + MAX_DEBT_S)


def _come_s(entry: Waiting, next_s: float) -> float:
    return max(entry.rank - entry.late_s, next_s) + entry.late_s
