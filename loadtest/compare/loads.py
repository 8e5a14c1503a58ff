"""The two loads that every contender gets: a saturating one and a fixed rate."""

import asyncio
import random
import time
from collections.abc import Sequence
from itertools import count
from typing import NamedTuple

from loadtest.compare.connection import Connection, TimedAnswer
from loadtest.load.arrivals import due_times

_MOST_OUTSTANDING = 256


class ClosedLoop(NamedTuple):
    """Clients that send the next request when the last is answered."""

    clients: int
    seconds: float  # how long at least; every text is sent once in any case
    limit_s: float  # how long at most


class Loaded(NamedTuple):
    """The answers to a load."""

    answers: list[TimedAnswer]  # in order of their end
    seconds: float  # from the first request to the last answer
    late_s: float = 0.0  # longest delay between due and sent (open loop)


async def saturate(port: int, requests: Sequence[bytes], load: ClosedLoop) -> Loaded:
    """Send the requests in turn, in a closed loop."""
    began_s = time.perf_counter()
    places = count()
    answers: list[TimedAnswer] = []

    def goes_on() -> bool:
        passed_s = time.perf_counter() - began_s
        unfinished = passed_s < load.seconds or len(answers) < len(requests)
        return passed_s <= load.limit_s and unfinished

    async def client() -> None:
        connection = await Connection.open(port)
        while goes_on():
            place = next(places) % len(requests)
            answers.append(await connection.send(requests[place], place, time.perf_counter()))
            if not answers[-1].status:
                break
        connection.close()

    await asyncio.gather(*(client() for _ in range(load.clients)))
    return Loaded(answers, time.perf_counter() - began_s)


async def arrive(
    port: int,
    requests: Sequence[bytes],
    per_second: float,
    seconds: float,
    most_outstanding: int = _MOST_OUTSTANDING,
) -> Loaded:
    """Send requests in an open loop with Poisson arrivals, the same for every contender.

    A request that is due while so many are outstanding is an answer without a status.
    """
    began_s = time.perf_counter()
    idle: list[Connection] = []
    answers: list[TimedAnswer] = []
    late_s = 0.0

    async def send(place: int, due_s: float) -> None:
        connection = idle.pop() if idle else await Connection.open(port)
        answers.append(await connection.send(requests[place], place, due_s))
        if answers[-1].status:
            idle.append(connection)

    async with asyncio.TaskGroup() as group:
        outstanding: set[asyncio.Task[None]] = set()
        due = due_times("poisson", per_second, began_s, random.Random(0))
        for number, due_s in enumerate(due):
            if due_s - began_s > seconds:
                break
            await asyncio.sleep(due_s - time.perf_counter())
            late_s = max(late_s, time.perf_counter() - due_s)
            place = number % len(requests)
            if len(outstanding) >= most_outstanding:
                answers.append(TimedAnswer(place, 0.0, 0, b"too many outstanding"))
                continue
            task = group.create_task(send(place, due_s))
            outstanding.add(task)
            task.add_done_callback(outstanding.discard)
    for connection in idle:
        connection.close()
    return Loaded(answers, time.perf_counter() - began_s, late_s)
