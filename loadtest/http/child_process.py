"""A command as a child process that never outlives its block."""

import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from loadtest.http.interruption import held_back
from loadtest.http.processes import Family

_LOG_LINES = 40


class ChildProcess:
    """A command in a session of its own; the end of its block kills what is left of it.

    Ctrl-C at a terminal reaches this process only.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self.command = command

    def __enter__(self) -> Self:
        with held_back():
            self._log = tempfile.TemporaryFile()
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                start_new_session=True,
            )
            self.family = Family(self._process.pid)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with held_back(), self._log:
            self.family.kill()
            self._process.wait()

    @property
    def pid(self) -> int:
        """The command's process id, which is also its session's."""
        return self._process.pid

    @property
    def output(self) -> str:
        """Everything printed so far."""
        log = self._log.fileno()
        # Not `seek` and `read`: the command writes at the same offset, which they would move.
        return os.pread(log, os.fstat(log).st_size, 0).decode(errors="replace")

    def last_lines(self) -> str:
        """Return the end of what was printed."""
        return "\n".join(self.output.splitlines()[-_LOG_LINES:])

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the command's own process only."""
        self.family.running()  # remembers those that may lose their parent now
        self._process.send_signal(number)

    def status(self, timeout_s: float) -> int | None:
        """Wait for the end and return the exit status; None if it does not come in time."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
