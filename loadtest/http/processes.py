"""The processes of a server: which there are, their processor time and their memory."""

import os
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

import psutil


class Family:
    """A process and all that it has ever been seen to start."""

    def __init__(self, leader: int) -> None:
        """Take the process id of the first, which leads a session."""
        self.leader = leader
        self._known: set[psutil.Process] = set()

    def running(self) -> set[psutil.Process]:
        """Return those that run now, also where their parent has ended. A zombie does not run."""
        now = list(psutil.process_iter())
        family = {self.leader}
        while more := {process.pid for process in now if _parents(process) & family} - family:
            family |= more
        self._known |= {process for process in now if process.pid in family}
        return {process for process in self._known if _runs(process)}

    def titled(self, name: str) -> set[psutil.Process]:
        """Return those that run with this in their command line."""
        return {process for process in self.running() if name in _title(process)}

    def kill(self) -> int:
        """Kill those that run and return how many there were."""
        left = self.running()
        for process in left:
            with suppress(psutil.Error):
                process.kill()
        return len(left)


class Cost(NamedTuple):
    """What processes have used so far."""

    cpu_s: dict[tuple[int, float], float]  # user and system time since its start, by process
    memory_mb: float  # proportional set size of all together, in which shared pages count once

    def cpu_since(self, before: "Cost") -> float:
        """Return the processor seconds since `before` of processes that still run."""
        return sum(now - before.cpu_s.get(key, 0.0) for key, now in self.cpu_s.items())


def cost_of(processes: Iterable[psutil.Process], memory: bool = True) -> Cost:
    """Read what these processes have used; a process that is gone counts nothing.

    Args:
        processes: to read.
        memory: read memory too, which takes milliseconds for each process.
    """
    cpu_s: dict[tuple[int, float], float] = {}
    memory_bytes = 0
    for process in processes:
        with suppress(psutil.Error):
            times = process.cpu_times()
            cpu_s[process.pid, process.create_time()] = times.user + times.system
            memory_bytes += process.memory_full_info().pss if memory else 0
    return Cost(cpu_s, memory_bytes / 1e6)


def own_cpu_s() -> float:
    """Return this process's processor seconds."""
    times = os.times()
    return times.user + times.system


def _parents(process: psutil.Process) -> set[int]:
    """Return a process's parent and the leader of its session."""
    with suppress(psutil.Error, OSError):
        return {process.ppid(), os.getsid(process.pid)}
    return set()


def _runs(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        running: bool = process.is_running() and process.status() != psutil.STATUS_ZOMBIE
        return running
    return False


def _title(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""
