"""Ctrl-C as a wish to stop at the next safe point, not an exception in the middle of a step."""

import signal
from types import FrameType, TracebackType


class Interruption:
    """While entered, SIGINT and SIGTERM only set `wished`; a second one acts as usual."""

    def __init__(self) -> None:
        self.wished = False
        self._before: dict[int, signal._HANDLER] = {}

    def __enter__(self) -> "Interruption":
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._restore()

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self.wished = True
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()
