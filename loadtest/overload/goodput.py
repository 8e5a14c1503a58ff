"""Good answers per second of an open loop: 200, within the deadline, seen from the client."""

import asyncio
import json
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from loadtest.compare.loads import ClosedLoop, arrive, saturate
from loadtest.http.client import Json

_CLIENTS = 16
_LIMIT_S = 120.0
# More than any server here admits: the queue is the server's.
_MOST_OUTSTANDING = 4096


class Goodput(NamedTuple):
    """What became of the requests of one load.

    Attributes:
        offered: requests per second that were due.
        good: answers with 200 within the deadline, per second.
        late: share of the requests that were answered with 200 after it.
        refused: share with another status, or none.
        degraded: share of the good answers that say so.
        layers: mean of the good answers.
        median_ms: time from when a good one was due to the end of its answer.
        behind_ms: how late the load itself sent a request at most.
    """

    offered: float
    good: float
    late: float
    refused: float
    degraded: float
    layers: float
    median_ms: float
    behind_ms: float


def capacity(port: int, requests: Sequence[bytes], seconds: float) -> float:
    """Return the answers per second of a closed loop that keeps the server busy."""
    closed = ClosedLoop(_CLIENTS, seconds, _LIMIT_S)
    loaded = asyncio.run(saturate(port, requests, closed))
    return sum(answer.status == 200 for answer in loaded.answers) / loaded.seconds


def goodput(
    port: int, requests: Sequence[bytes], per_second: float, seconds: float, deadline_s: float
) -> Goodput:
    """Send requests at a rate, whatever becomes of them, and count the good answers."""
    load = arrive(port, requests, per_second, seconds, _MOST_OUTSTANDING)
    loaded = asyncio.run(load)
    good = [a for a in loaded.answers if a.status == 200 and a.latency_s <= deadline_s]
    late = sum(a.status == 200 for a in loaded.answers) - len(good)
    total = len(loaded.answers)
    shown: list[Json] = [json.loads(answer.body) for answer in good]
    layers = [each["exit"]["layer"] for answer in shown for each in answer["results"]]
    return Goodput(
        offered=total / seconds,
        good=len(good) / seconds,
        late=late / total,
        refused=(total - len(good) - late) / total,
        degraded=sum("degraded" in answer for answer in shown) / max(1, len(shown)),
        layers=statistics.fmean(layers) if layers else 0.0,
        median_ms=1e3 * statistics.median([a.latency_s for a in good] or [0.0]),
        behind_ms=1e3 * loaded.late_s,
    )
