"""Good answers per second of an open loop: status 200 within the deadline, seen by the client."""

import asyncio
import json
import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

from loadtest.compare.loads import ClosedLoop, arrive, saturate
from loadtest.http.client import Json

_CLIENTS = 16
_LIMIT_S = 120.0
# More than the server here admits: the queue is the server's.
_MOST_OUTSTANDING = 4096


class Goodput(NamedTuple):
    """What became of the requests of one load.

    Attributes:
        offered: requests per second that were due.
        good: answers with 200 within the deadline, per second.
        degraded: share of the good answers that say so.
        layers: mean of the good answers' texts.
        behind_ms: how late the load itself sent a request at most.
    """

    offered: float
    good: float
    degraded: float
    layers: float
    behind_ms: float


class Compared(NamedTuple):
    """The medians of several turns.

    Attributes:
        texts: in a request.
        load: times the capacity.
        without: without `overload`.
        overload: with it.
    """

    texts: int
    load: float
    without: Goodput
    overload: Goodput

    @property
    def row(self) -> dict[str, Any]:
        """A row of the table."""
        return {
            "texts in a request": self.texts,
            "load, of capacity": f"{self.load:g}",
            "requests/s": round(self.overload.offered),
            "in time/s without": round(self.without.good),
            "in time/s with overload": round(self.overload.good),
            "with / without": f"{self.overload.good / max(self.without.good, 1):.2f}",
            "degraded": f"{100 * self.overload.degraded:.0f} %",
            "layers without": f"{self.without.layers:.2f}",
            "layers with": f"{self.overload.layers:.2f}",
        }


def capacity(port: int, requests: Sequence[bytes], seconds: float, turns: int) -> float:
    """Return the answers per second of a closed loop that keeps the server busy: the median."""
    closed, found = ClosedLoop(_CLIENTS, seconds, _LIMIT_S), []
    for _ in range(turns):
        loaded = asyncio.run(saturate(port, requests, closed))
        found.append(sum(answer.status == 200 for answer in loaded.answers) / loaded.seconds)
    return statistics.median(found)


def goodput(
    port: int, requests: Sequence[bytes], per_second: float, seconds: float, deadline_s: float
) -> Goodput:
    """Send requests at a rate, whatever becomes of them, and count the good answers."""
    load = arrive(port, requests, per_second, seconds, _MOST_OUTSTANDING)
    loaded = asyncio.run(load)
    good = [a for a in loaded.answers if a.status == 200 and a.latency_s <= deadline_s]
    shown: list[Json] = [json.loads(answer.body) for answer in good]
    layers = [each["exit"]["layer"] for answer in shown for each in answer["results"]]
    return Goodput(
        offered=len(loaded.answers) / seconds,
        good=len(good) / seconds,
        degraded=sum("degraded" in answer for answer in shown) / max(1, len(shown)),
        layers=statistics.fmean(layers) if layers else 0.0,
        behind_ms=1e3 * loaded.late_s,
    )


def compared(texts: int, load: float, turns: Sequence[tuple[Goodput, Goodput]]) -> Compared:
    """Return the median of each figure over the turns, of which each has both sides."""
    without, overload = (
        Goodput(*map(statistics.median, zip(*side, strict=True)))
        for side in zip(*turns, strict=True)
    )
    return Compared(texts, load, without, overload)
