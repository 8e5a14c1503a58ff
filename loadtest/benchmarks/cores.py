"""Cores of their own for the server and for the load."""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from loadtest.http.server_process import ServerProcess, on_free_port


class Cores(NamedTuple):
    """The cores of the servers and of the load."""

    servers: frozenset[int]
    load: frozenset[int]


def share_cores(num_for_servers: int | None = None) -> Cores:
    """Give the load one core and the servers the rest, or so many; a lone core is shared."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) == 1:
        return Cores(frozenset(cores), frozenset(cores))
    num = min(num_for_servers or len(cores) - 1, len(cores) - 1)
    return Cores(frozenset(cores[:num]), frozenset(cores[-1:]))


@contextmanager
def on(cores: frozenset[int]) -> Iterator[None]:
    """Run a block, and the processes that it starts, on these cores. Main thread."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def running(command: Sequence[str], cores: Cores) -> Iterator[ServerProcess]:
    """Run a server on its cores for a block, from when it is ready.

    Args:
        command: starts it; a port is appended.
        cores: of which it gets the servers'.

    Raises:
        ServerFailed: it did not start, or did not stop.
    """
    with ExitStack() as stack:
        with on(cores.servers):
            server = stack.enter_context(on_free_port(*command))
        server.wait_until_ready()
        yield server
