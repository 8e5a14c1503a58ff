"""The two loads that every contender gets: as much as it can bear, and as much as all can bear."""

import asyncio
import random
import time
from collections.abc import Sequence
from itertools import count
from typing import NamedTuple

from loadtest.compare.connection import Answered, Wire
from loadtest.load.arrivals import Timetable

_MOST_OUTSTANDING = 256


class Closed(NamedTuple):
    """Clients that ask as soon as they are answered.

    Attributes:
        clients: how many.
        seconds: how long at least; but every text is asked about once in any case.
        limit_s: how long at most.
    """

    clients: int
    seconds: float
    limit_s: float


class Loaded(NamedTuple):
    """What a load gave.

    Attributes:
        answers: in order of their end.
        seconds: from the first request to the last answer.
        late_s: how long after it was due the latest was sent (open loop).
    """

    answers: list[Answered]
    seconds: float
    late_s: float = 0.0


async def saturate(port: int, requests: Sequence[bytes], load: Closed) -> Loaded:
    """Ask in a closed loop, the texts in turn."""
    began_s = time.perf_counter()
    places = count()
    answers: list[Answered] = []

    async def client() -> None:
        wire = await Wire.open(port)
        while _goes_on(time.perf_counter() - began_s, len(answers), len(requests), load):
            place = next(places) % len(requests)
            answers.append(await wire.ask(requests[place], place, time.perf_counter()))
            if not answers[-1].status:
                break
        wire.close()

    await asyncio.gather(*(client() for _ in range(load.clients)))
    return Loaded(answers, time.perf_counter() - began_s)


def _goes_on(passed_s: float, num_answers: int, num_texts: int, load: Closed) -> bool:
    if passed_s > load.limit_s:
        return False
    return passed_s < load.seconds or num_answers < num_texts


async def arrive(port: int, requests: Sequence[bytes], per_second: float, seconds: float) -> Loaded:
    """Ask in an open loop, Poisson, the same arrivals for every contender.

    A request that is due while 256 are outstanding is an answer without a status.
    """
    began_s = time.perf_counter()
    due = Timetable("poisson", per_second, began_s, random.Random(0))
    idle: list[Wire] = []
    answers: list[Answered] = []
    late_s = 0.0

    async def ask(place: int, due_s: float) -> None:
        wire = idle.pop() if idle else await Wire.open(port)
        answers.append(await wire.ask(requests[place], place, due_s))
        if answers[-1].status:
            idle.append(wire)

    async with asyncio.TaskGroup() as asked:
        outstanding: set[asyncio.Task[None]] = set()
        for number in count():
            due_s = due.next()
            if due_s - began_s > seconds:
                break
            await asyncio.sleep(due_s - time.perf_counter())
            late_s = max(late_s, time.perf_counter() - due_s)
            place = number % len(requests)
            if len(outstanding) >= _MOST_OUTSTANDING:
                answers.append(Answered(place, 0.0, 0, b"too many outstanding"))
                continue
            task = asked.create_task(ask(place, due_s))
            outstanding.add(task)
            task.add_done_callback(outstanding.discard)
    for wire in idle:
        wire.close()
    return Loaded(answers, time.perf_counter() - began_s, late_s)
