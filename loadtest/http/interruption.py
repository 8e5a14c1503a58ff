"""SIGINT and SIGTERM both raise `KeyboardInterrupt`, except while a child process is started."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_received: list[int] = []


def interrupt_on_signals() -> None:
    """Let both signals raise `KeyboardInterrupt`, so that `with` blocks clean up. Main thread.

    SIGINT needs this too, because a shell's background job inherits it ignored.
    """
    for number in _SIGNALS:
        signal.signal(number, _interrupt)


def interrupted() -> bool:
    """Whether one of the signals has come.

    Python drops an exception that a handler raises inside a finalizer. The error that follows,
    with the server stopped as well, is not a failure of the command.
    """
    return bool(_received)


def _interrupt(number: int, frame: FrameType | None) -> None:
    _received.append(number)
    signal.default_int_handler(number, frame)


@contextmanager
def held_back() -> Iterator[None]:
    """Let SIGINT and SIGTERM wait until the block has ended. Main thread.

    A child started in the block does not inherit these handlers, unlike a blocked signal mask.
    """
    pending: list[int] = []
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number in _SIGNALS:
        signal.signal(number, lambda received, frame: pending.append(received))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if pending:
        raise KeyboardInterrupt
