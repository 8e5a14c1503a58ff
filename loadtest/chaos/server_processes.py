"""The processes of a running server, by role, and those left at its end."""

import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Literal, TypeAlias

import psutil

from loadtest.http.processes import session_of
from serve.errors import OfframpError

Role: TypeAlias = Literal["ServeReplica", "ServeController", "ProxyActor", "gcs_server"]

_POLL_S = 0.1


class NotSeen(OfframpError):
    """An expected event did not happen in time."""


class ServerProcesses:
    """A server's processes, with all that it has ever started."""

    def __init__(self, leader: int) -> None:
        """Take the process id of the server, which leads its session."""
        self.leader = leader
        self._known: dict[tuple[int, float], psutil.Process] = {}

    def look(self) -> list[psutil.Process]:
        """Return the processes that run now, and remember them."""
        found = session_of(self.leader)
        for process in found:
            with suppress(psutil.Error):
                self._known[process.pid, process.create_time()] = process
        return found

    def pids(self, role: Role) -> set[int]:
        """Return the process ids of one kind of Ray Serve's actors."""
        found = set()
        for process in self.look():
            with suppress(psutil.Error):
                if role in " ".join(process.cmdline()):
                    found.add(process.pid)
        return found

    def signal_one(self, role: Role, number: signal.Signals) -> int:
        """Send a signal to one actor's process; return its process id."""
        pid = min(self.pids(role))
        psutil.Process(pid).send_signal(number)
        return pid

    def left(self, patience_s: float = 10.0) -> list[psutil.Process]:
        """Return the known processes that still run after `patience_s`."""
        _, alive = psutil.wait_procs(list(self._known.values()), timeout=patience_s)
        return [process for process in alive if runs(process)]


def runs(process: psutil.Process) -> bool:
    """Tell whether a process runs; a zombie does not."""
    with suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float = 90.0) -> float:
    """Wait until a condition holds, and return the seconds that took.

    Raises:
        NotSeen: it did not hold in time.
    """
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > timeout_s:
            raise NotSeen(f"{what}: not within {timeout_s:g} s")
        time.sleep(_POLL_S)
    return time.monotonic() - began
