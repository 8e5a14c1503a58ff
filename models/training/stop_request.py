"""Ctrl-C as a request to stop between two training steps."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType

# Written by itself: a stream may be in the middle of a line when the signal comes.
_SAID = b"\nstopping after this step, from which it can go on later; Ctrl-C again ends at once\n"


@dataclass
class StopRequest:
    """Whether the user has asked to stop."""

    requested: bool = False


@contextmanager
def stop_on_signal() -> Iterator[StopRequest]:
    """Turn the first SIGINT or SIGTERM inside the block into a request; a second acts as usual.

    The request is confirmed on stderr at once, for a step may take minutes.
    """
    stop = StopRequest()
    previous = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in previous.items():
            signal.signal(number, handler)

    def request(_number: int, _frame: FrameType | None) -> None:
        stop.requested = True
        restore()
        with suppress(OSError):
            os.write(2, _SAID)

    for number in previous:
        signal.signal(number, request)
    try:
        yield stop
    finally:
        restore()
