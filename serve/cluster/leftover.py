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


def end_leftover(token: Path, variable: str, after_s: float = 0.0) -> None:
    """Return when no other process of a session is left, which are killed after some time.

    Ray's agents wait for minutes for a control process that has died.

    Args:
        token: file in the folder of the session.
        variable: has its path in the environment of each process.
        after_s: what has not ended by then is killed.
    """
    kill_s = time.monotonic() + after_s
    while pids := list(_of_session(token, f"{variable}={token}".encode())):
        if time.monotonic() > kill_s + _PATIENCE_S:
            return
        if time.monotonic() >= kill_s:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        time.sleep(_POLL_EVERY_S)


def _of_session(token: Path, mark: bytes) -> Iterator[int]:
    for process in Path("/proc").glob("[0-9]*"):
        # Of processes that have just ended, and of other users, it cannot be read.
        with suppress(OSError):
            marked = mark in (process / "environ").read_bytes().split(b"\0")
            if int(process.name) != os.getpid() and (marked or _titled(process, token.parent)):
                yield int(process.name)


def _titled(process: Path, folder: Path) -> bool:
    """Tell whether a process of Ray's has files of a folder open.

    Its title may lie where its environment was.
    """
    if not (process / "cmdline").read_bytes().startswith(b"ray::"):
        return False
    return any(str(f.readlink()).startswith(f"{folder}/") for f in (process / "fd").iterdir())
