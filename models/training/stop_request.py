"""Ctrl-C as a request to stop between two training steps."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType


@dataclass
class StopRequest:
    """Whether the user has asked to stop."""

    requested: bool = False


@contextmanager
def stop_on_signal() -> Iterator[StopRequest]:
    """Turn the first SIGINT or SIGTERM inside the block into a request; a second acts as usual."""
    stop = StopRequest()
    previous = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in previous.items():
            signal.signal(number, handler)

    def request(_number: int, _frame: FrameType | None) -> None:
        stop.requested = True
        restore()

    for number in previous:
        signal.signal(number, request)
    try:
        yield stop
    finally:
        restore()
