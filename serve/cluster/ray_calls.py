"""Calls of Ray that end, also when Ray's control process has ended before."""

import socket
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Final, TypeVar

from serve.errors import Unavailable

Result = TypeVar("Result")

_POLL_EVERY_S: Final = 0.1
# Linux ends Ray's processes when the thread that has started them ends, so these threads stay. On
# the main thread a signal could break off the start and leave processes behind; elsewhere it
# cannot, and Ray does not install its own handler for SIGTERM.
_THREADS: Final = ThreadPoolExecutor(4, thread_name_prefix="ray-call")


class RayEnded(Unavailable):
    """Ray's control process has ended, so that Ray answers no call any more."""


class RayCalls:
    """Calls Ray on threads, because a call may hang.

    If the control process has ended, Ray waits for it a minute, and then aborts this process.
    """

    def __init__(self) -> None:
        self._address: tuple[str, int] | None = None
        self._calls: list[Future[Any]] = []

    def watch(self, gcs_address: str) -> None:
        """Take host and port of the control process."""
        host, _, port = gcs_address.rpartition(":")
        self._address = host, int(port)

    @property
    def hang(self) -> bool:
        """Whether a call has not ended. Then the end of the interpreter would wait for it."""
        return not all(call.done() for call in self._calls)

    def call(
        self,
        function: Callable[[], Result],
        until: Callable[[], bool] = lambda: False,
        grace_s: float = 0.0,
    ) -> Result | None:
        """Return what a function returns that calls Ray; None if `until` comes before.

        Raises:
            RayEnded: the control process has ended, and so has `grace_s` after that.
        """
        call = _THREADS.submit(function)
        self._calls.append(call)
        seen_s = time.monotonic()
        while not wait([call], _POLL_EVERY_S).done:
            if until():
                return None
            if self._ray_runs():
                seen_s = time.monotonic()
            elif time.monotonic() > seen_s + grace_s:
                raise RayEnded("Ray's processes have ended")
        return call.result()

    def _ray_runs(self) -> bool:
        if self._address is None:
            return True
        try:
            socket.create_connection(self._address, 1.0).close()
        except ConnectionRefusedError:
            return False
        except OSError:
            return True  # what is busy runs
        return True
