"""Ctrl-C and SIGTERM end a run the same way, and never between starting a child and noting it."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_received: list[int] = []


def interrupt_on_signals() -> None:
    """Let both signals raise `KeyboardInterrupt`, so that `with` blocks clean up. Main thread.

    SIGINT too: a shell's background job inherits it ignored.
    """
    for number in _SIGNALS:
        signal.signal(number, _interrupt)


def interrupted() -> bool:
    """Whether one of the signals has come.

    Python drops an exception that a handler happens to raise inside a finalizer; what then goes
    wrong, with the server told to stop as well, is no failure of its own.
    """
    return bool(_received)


def _interrupt(number: int, frame: FrameType | None) -> None:
    _received.append(number)
    signal.default_int_handler(number, frame)


@contextmanager
def held_back() -> Iterator[None]:
    """Let SIGINT and SIGTERM wait until the block has ended. Main thread.

    Unlike a blocked signal mask, a handler is not inherited by a child started meanwhile.
    """
    pending: list[tuple[int, FrameType | None]] = []
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number in _SIGNALS:
        signal.signal(number, lambda received, frame: pending.append((received, frame)))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if pending:
        raise KeyboardInterrupt
