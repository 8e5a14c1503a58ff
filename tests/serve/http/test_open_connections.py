"""How often the guard looks at connections, in simulated time."""

import asyncio
import resource
import selectors
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import pytest

from serve.http.open_connections import RESERVED_DESCRIPTORS, SWEEP_EVERY_S, OpenConnections
from serve.http.settings import ConnectionLimits, ConnectionState


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer."""

    def __init__(self) -> None:
        self._now_s = 0.0
        super().__init__(_JumpingSelector(self))

    def time(self) -> float:
        return self._now_s

    def jump(self, seconds: float) -> None:
        self._now_s += seconds


class _JumpingSelector(selectors.SelectSelector):
    def __init__(self, loop: SimulatedLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._loop.jump(timeout or 0.0)
        return super().select(0)


class Connection:
    """Notes when it is looked at."""

    def __init__(self, looks: list[tuple[float, "Connection"]]) -> None:
        self._looks = looks

    def sweep(self, now_s: float) -> None:
        self._looks.append((asyncio.get_running_loop().time(), self))

    def abort(self) -> None:
        pass


async def looks_at(
    num_connections: int, num_sweeps: int, num_that_end: int = 0
) -> list[tuple[float, Connection]]:
    """Return the looks at some connections, each with its time."""
    guard = OpenConnections(ConnectionLimits(), ConnectionState())
    looks: list[tuple[float, Connection]] = []
    connections = [Connection(looks) for _ in range(num_connections)]
    for connection in connections:
        guard.watch(connection, connection.abort)
    running = asyncio.create_task(guard.run())
    await asyncio.sleep(0)
    for connection in connections[:num_that_end]:
        guard.forget(connection)
    while len(looks) < num_sweeps * (num_connections - num_that_end):
        await asyncio.sleep(SWEEP_EVERY_S / 1000)
    running.cancel()
    return looks


def simulated(num_connections: int, num_sweeps: int = 1, num_that_end: int = 0) -> list[float]:
    """Return the times of the looks; each connection must have had as many as there were sweeps."""
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        looks = runner.run(looks_at(num_connections, num_sweeps, num_that_end))
    counts = Counter(connection for _, connection in looks)
    assert set(counts.values()) == {num_sweeps}
    return [at_s for at_s, _ in looks]


def test_looks_at_thousands_of_connections_are_spread_evenly_over_the_time() -> None:
    times = simulated(3000)
    assert max(Counter(times).values()) <= 20  # in a row, while nothing else runs
    assert max(later - earlier for earlier, later in pairwise(times)) < SWEEP_EVERY_S / 100
    assert SWEEP_EVERY_S * 0.95 < times[-1] < SWEEP_EVERY_S * 1.05


def test_connection_that_ends_before_its_turn_is_not_looked_at() -> None:
    assert len(simulated(100, num_that_end=40)) == 60


def test_pause_in_which_the_server_reads_nothing_counts_against_no_client() -> None:
    async def paused_for(seconds: float) -> float:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        guard = OpenConnections(ConnectionLimits(), ConnectionState())
        running = asyncio.create_task(guard.run())
        await asyncio.sleep(0)
        loop.jump(seconds)
        await asyncio.sleep(SWEEP_EVERY_S)
        running.cancel()
        return guard.now_s

    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        assert runner.run(paused_for(3600)) <= 3 * SWEEP_EVERY_S


@pytest.fixture
def few_descriptors() -> Iterator[int]:
    """Let this process have few file descriptors for now; return how many it may ask for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    yield 10**6 if hard == resource.RLIM_INFINITY else hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_descriptors_are_asked_for_as_the_connections_need_them(few_descriptors: int) -> None:
    wanted = min(4096, few_descriptors - RESERVED_DESCRIPTORS)
    guard = OpenConnections(ConnectionLimits(max_connections=wanted), ConnectionState())
    assert guard.limits.max_connections == wanted
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == wanted + RESERVED_DESCRIPTORS


_FIT = """
import resource, sys
from serve.http.open_connections import connections_that_fit
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]),) * 2)
print(connections_that_fit(4096))
"""


@pytest.mark.parametrize(("descriptors", "connections"), [(1024, 768), (300, 150)])
def test_connections_leave_descriptors_for_the_server_itself(
    descriptors: int, connections: int
) -> None:
    command = [sys.executable, "-c", _FIT, str(descriptors)]
    found = subprocess.run(command, capture_output=True, check=True, timeout=60).stdout
    assert int(found) == connections
