"""Runs `offramp` and writes where its event loop spends processor time.

`python -P sampler.py FILE ARGUMENTS...`. It imports nothing but the standard library and
`serve.cli`, so that it runs the server of any checkout that PYTHONPATH names.

A timer on the main thread's own processor time interrupts it, and the stack is counted. So waiting
does not count, and neither does the engine. Time in C counts for the Python function that called
it, or that it calls next. SIGUSR1 starts counting, and ends it.
"""

import ctypes
import json
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

# The kernel looks at such timers at its own ticks, mostly every 4 ms: then each tick counts.
EVERY_NS = 100_000

_SIGEV_THREAD_ID = 4

Counts = Counter[tuple[str, ...]]


class _SigEvent(ctypes.Structure):
    """`struct sigevent` of Linux, see sigevent(7)."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signal", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("thread_id", ctypes.c_int),
        ("padding", ctypes.c_int * 11),
    )


def start(counts: Counts) -> None:
    """Let SIGUSR1 switch the counting of this thread's stacks, which must be the main thread's.

    Args:
        counts: gets stacks, each of `module:function`, the innermost first.
    """
    counting = False

    def switch(number: int, frame: FrameType | None) -> None:
        nonlocal counting
        counting = not counting

    def sample(number: int, frame: FrameType | None) -> None:
        stack = []
        while counting and frame:
            stack.append(f"{frame.f_globals.get('__name__', '')}:{frame.f_code.co_name}")
            frame = frame.f_back
        if stack:
            counts[tuple(stack)] += 1

    signal.signal(signal.SIGUSR1, switch)
    signal.signal(signal.SIGPROF, sample)
    libc = ctypes.CDLL(None, use_errno=True)
    event = _SigEvent(None, signal.SIGPROF, _SIGEV_THREAD_ID, threading.get_native_id())
    timer = ctypes.c_void_p()
    clock = time.CLOCK_THREAD_CPUTIME_ID
    _check(libc.timer_create(clock, ctypes.byref(event), ctypes.byref(timer)))
    times = (ctypes.c_long * 4)(0, EVERY_NS, 0, EVERY_NS)  # interval and first: s, ns
    _check(libc.timer_settime(timer, 0, ctypes.byref(times), None))


def _check(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), "no timer for the processor time of a thread")


def main(file: str, *arguments: str) -> Any:
    """Run `offramp` with arguments; write the counted stacks when it ends."""
    from serve.cli import main as offramp

    counts: Counts = Counter()
    sys.argv = ["offramp", *arguments]
    start(counts)
    try:
        return offramp()
    finally:
        signal.signal(signal.SIGPROF, signal.SIG_IGN)
        Path(file).write_text(json.dumps(list(counts.items())))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
