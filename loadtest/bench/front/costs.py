"""Processor time of a server's threads for each request, server after server in turns."""

import asyncio
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from loadtest.compare.loads import ClosedLoop, Loaded, saturate
from loadtest.compare.measure import WrongAnswers
from loadtest.http.client import Json
from loadtest.http.server_process import ServerProcess

THIS, OTHER = "Offramp", "Offramp, the other checkout"
_LIMIT_S = 120.0
_OK = 200


class Cost(NamedTuple):
    """What a request took in one turn: milliseconds of processor time, by thread.

    Attributes:
        loop_ms: of the main thread, which runs the event loop.
        engine_ms: of that other thread which took most: the one that runs the model.
        other_ms: of all other threads together.
        per_second: answered requests.
    """

    loop_ms: float
    engine_ms: float
    other_ms: float
    per_second: float

    @property
    def sum_ms(self) -> float:
        """Of all threads."""
        return self.loop_ms + self.engine_ms + self.other_ms


class Lane(NamedTuple):
    """What one turn sends to one server: whole HTTP requests, from so many clients at a time."""

    name: str  # of the server, in messages
    server: ServerProcess
    requests: Sequence[bytes]
    clients: int

    def load(self) -> Loaded:
        """Send the requests in a closed loop.

        Raises:
            WrongAnswers: the server failed to answer.
        """
        closed = ClosedLoop(self.clients, 0.0, _LIMIT_S)
        loaded = asyncio.run(saturate(self.server.port, self.requests, closed))
        for answer in loaded.answers:
            if answer.status != _OK:
                shown = answer.body[:200].decode(errors="replace")
                raise WrongAnswers(f"{self.name} answered {answer.status}: {shown}")
        return loaded

    def cost(self) -> Cost:
        """Send the requests and return what one took.

        Raises:
            WrongAnswers: the server failed to answer.
        """
        pid = self.server.pid
        before = thread_seconds(pid)
        loaded = self.load()
        seconds = spent(pid, before, thread_seconds(pid))
        num = len(loaded.answers)
        main_ms, engine_ms, other_ms = (1e3 * each / num for each in seconds)
        return Cost(main_ms, engine_ms, other_ms, num / loaded.seconds)


def measure(lanes: Sequence[Lane], turns: int, report: Callable[[str], None]) -> list[list[Cost]]:
    """Load each lane in every turn, and return the costs of each lane by turn.

    Raises:
        WrongAnswers: a server failed to answer.
    """
    costs: list[list[Cost]] = [[] for _ in lanes]
    draw = random.Random(0)
    for lane in lanes:
        lane.load()  # warms up
    for turn in range(turns):
        for place in draw.sample(range(len(lanes)), len(lanes)):
            costs[place].append(lanes[place].cost())
        report(f"turn {turn + 1} of {turns}")
    return costs


def median_cost(costs: Sequence[Cost]) -> Cost:
    """Return the median of each figure."""
    return Cost(*map(statistics.median, zip(*costs, strict=True)))


def loop_ratio(costs: Sequence[Cost], others: Sequence[Cost]) -> float:
    """Return the median over turns of one event loop's time over another's."""
    pairs = zip(costs, others, strict=True)
    return statistics.median(cost.loop_ms / other.loop_ms for cost, other in pairs)


def spent(
    pid: int, before: Mapping[int, float], after: Mapping[int, float]
) -> tuple[float, float, float]:
    """Return seconds of the main thread, of the engine's thread and of all others."""
    seconds = {thread: now - before.get(thread, 0.0) for thread, now in after.items()}
    main = seconds.pop(pid)
    engine = max(seconds.values(), default=0.0)
    return main, engine, sum(seconds.values()) - engine


def thread_seconds(pid: int) -> dict[int, float]:
    """Return the processor time of each thread of a process so far, by thread id."""
    found = {}
    for folder in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError):  # of a thread that has ended
            nanoseconds = (folder / "schedstat").read_text().split()[0]
            found[int(folder.name)] = int(nanoseconds) / 1e9
    return found


class Line(NamedTuple):
    """One server with one exit choice and one size of requests.

    Attributes:
        server: its name.
        exit: what is asked of it.
        texts: in each request.
        costs: by turn.
    """

    server: str
    exit: str
    texts: int
    costs: Sequence[Cost]


def figures(lines: Sequence[Line]) -> list[Json]:
    """Return each line's medians, its event loop's time over others', and last its turns."""
    return [
        {
            **dict(zip(line._fields[:3], line[:3], strict=True)),
            **median_cost(line.costs)._asdict(),
            "sum_ms": median_cost(line.costs).sum_ms,
            "event loop / other's": _loop_to_other(line, lines),
            "turns": [cost._asdict() for cost in line.costs],
        }
        for line in lines
    ]


def _loop_to_other(line: Line, lines: Sequence[Line]) -> float | None:
    """Compare with the other checkout's event loop at equal requests, if there is one."""
    kind = (OTHER, *line[1:3])
    return next((loop_ratio(line.costs, each.costs) for each in lines if each[:3] == kind), None)
