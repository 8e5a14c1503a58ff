"""Processor time and memory of processes, children included."""

import os
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

import psutil


class Cost(NamedTuple):
    """What processes have used so far."""

    cpu_s: dict[tuple[int, float], float]  # user and system time since its start, by process
    memory_mb: float  # proportional set size of all together, in which shared pages count once

    def cpu_since(self, before: "Cost") -> float:
        """Return the processor seconds since `before` of processes that still run."""
        return sum(now - before.cpu_s.get(key, 0.0) for key, now in self.cpu_s.items())


def session_of(leader: int) -> list[psutil.Process]:
    """Return the processes of a session, and their children in other sessions."""
    found: dict[int, psutil.Process] = {}
    for process in psutil.process_iter():
        with suppress(OSError, psutil.Error):
            if os.getsid(process.pid) == leader:
                found[process.pid] = process
    for process in list(found.values()):
        with suppress(psutil.Error):
            found |= {child.pid: child for child in process.children(recursive=True)}
    return list(found.values())


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
