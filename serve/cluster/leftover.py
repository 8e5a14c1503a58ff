"""Processes of a Ray session that Ray itself cannot end any more."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

_POLL_EVERY_S: Final = 0.05
# What has been killed takes so long to end at most.
_PATIENCE_S: Final = 5.0


def end_leftover(variable: str, value: str, after_s: float = 0.0) -> None:
    """Return when no process has a variable of this value in its environment, but this one.

    Those that have not ended after some time are killed. Ray's agents wait for minutes for a
    control process that has died.
    """
    mark, kill_s = f"{variable}={value}".encode(), time.monotonic() + after_s
    while pids := list(_with(mark)):
        if time.monotonic() > kill_s + _PATIENCE_S:
            return
        if time.monotonic() >= kill_s:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        time.sleep(_POLL_EVERY_S)


def _with(mark: bytes) -> Iterator[int]:
    for folder in Path("/proc").glob("[0-9]*"):
        # Of processes that have just ended, and of other users, it cannot be read.
        with suppress(OSError):
            marked = mark in (folder / "environ").read_bytes().split(b"\0")
            if marked and int(folder.name) != os.getpid():
                yield int(folder.name)
