"""The processes of a running server: who is who, and that none is left at the end."""

import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Literal, TypeAlias

import psutil

from loadtest.http.processes import session_of

Part: TypeAlias = Literal["ServeReplica", "ServeController", "ProxyActor"]

_POLL_S = 0.1


class NotSeen(Exception):
    """Something that was to happen did not, in time."""


class Family:
    """A server's processes, and all that it has ever been seen to start."""

    def __init__(self, leader: int) -> None:
        """Take the process id of the server, which leads its session."""
        self.leader = leader
        self._known: dict[tuple[int, float], psutil.Process] = {}

    def look(self) -> list[psutil.Process]:
        """Return what runs now, and remember it."""
        found = session_of(self.leader)
        for process in found:
            with suppress(psutil.Error):
                self._known[process.pid, process.create_time()] = process
        return found

    def pids(self, part: Part) -> set[int]:
        """Return the process ids of one kind of Ray Serve's actors."""
        found = set()
        for process in self.look():
            with suppress(psutil.Error):
                if part in " ".join(process.cmdline()):
                    found.add(process.pid)
        return found

    def kill_one(self, part: Part) -> int:
        """Kill one actor's process at once, as a crash would; return its process id."""
        pid = min(self.pids(part))
        psutil.Process(pid).send_signal(signal.SIGKILL)
        return pid

    def left(self, patience_s: float = 10.0) -> list[psutil.Process]:
        """Return what still runs of all that was ever seen; those that are ending get a while."""
        _, alive = psutil.wait_procs(list(self._known.values()), timeout=patience_s)
        return [p for p in alive if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


def wait_for(look: Callable[[], bool], what: str, timeout_s: float = 90.0) -> float:
    """Wait until something is so, and return the seconds that took.

    Raises:
        NotSeen: it was not so in time.
    """
    began = time.monotonic()
    while not look():
        if time.monotonic() - began > timeout_s:
            raise NotSeen(f"{what}: not within {timeout_s:g} s")
        time.sleep(_POLL_S)
    return time.monotonic() - began
