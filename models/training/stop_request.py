"""Ctrl-C as a request to stop between two training steps."""

import signal
from types import FrameType, TracebackType


class StopRequest:
    """Within this context the first SIGINT or SIGTERM only sets `requested`."""

    def __init__(self) -> None:
        self.requested = False
        self._previous: dict[int, signal._HANDLER] = {}

    def __enter__(self) -> "StopRequest":
        for number in (signal.SIGINT, signal.SIGTERM):
            self._previous[number] = signal.signal(number, self._request)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._restore()

    def _request(self, _number: int, _frame: FrameType | None) -> None:
        self.requested = True
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous.clear()
