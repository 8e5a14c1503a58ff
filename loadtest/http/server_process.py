"""Commands as child processes that never outlive their block; servers among them."""

import os
import signal
import socket
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from loadtest.http.client import Client
from loadtest.http.interruption import held_back
from loadtest.http.processes import Family
from serve.errors import OfframpError

HOST = "127.0.0.1"
OFFRAMP = str(Path(sysconfig.get_path("scripts")) / "offramp")
_LOG_LINES = 40
_POLL_S = 0.2
_STOP_S = 60.0
_GONE_S = 10.0


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


class ServerFailed(OfframpError):
    """The server did not start, or did not stop as it should; the message has its last lines."""


class ServerProcess(ChildProcess):
    """A child process that listens on a port; the end of the block stops it in any case."""

    def __init__(self, command: Sequence[str], port: int) -> None:
        super().__init__(command)
        self.port = port
        self.url = f"http://{HOST}:{port}"
        self._stopped = False

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        unimportant = (ServerFailed,) if error else ()
        with held_back():
            try:
                with suppress(*unimportant):
                    self.stop()
            finally:
                super().__exit__(kind, error, trace)

    def wait_until_ready(
        self, timeout_s: float = 120.0, tick: Callable[[float], None] = lambda _: None
    ) -> float:
        """Wait until the server answers on /health/ready and return the seconds it took.

        Args:
            timeout_s: when to give up.
            tick: called with the seconds waited, several times a second.

        Raises:
            ServerFailed: the server ended, or was not ready in time.
        """
        began = time.monotonic()
        client = Client(self.url, timeout_s=5.0)
        while not client.ready():
            waited_s = time.monotonic() - began
            tick(waited_s)
            if self.status(_POLL_S) is not None:
                raise ServerFailed(f"the server ended before it was ready:\n{self.last_lines()}")
            if waited_s > timeout_s:
                raise ServerFailed(
                    f"the server was not ready after {timeout_s:g} s:\n{self.last_lines()}"
                )
        return time.monotonic() - began

    def stop(self) -> None:
        """End the server with SIGTERM and check that none of its processes is left.

        Raises:
            ServerFailed: the server ended with an error, or a process had to be killed.
        """
        if self._stopped:
            return
        self._stopped = True
        ran = self.status(0) is None
        self.send(signal.SIGTERM)
        code = self.status(_STOP_S)
        if code is not None:
            self._wait_for_the_others()
        if num_killed := self.family.kill():
            raise ServerFailed(
                f"{num_killed} processes of the server did not end and were killed:\n"
                f"{self.last_lines()}"
            )
        if ran and code not in (0, -signal.SIGTERM):
            raise ServerFailed(f"the server ended with status {code}:\n{self.last_lines()}")

    def _wait_for_the_others(self) -> None:
        end_s = time.monotonic() + _GONE_S
        while self.family.running() and time.monotonic() < end_s:
            time.sleep(_POLL_S)


def on_free_port(*command: str) -> ServerProcess:
    """Return a server, not yet started, whose command takes a port of 127.0.0.1 at its end."""
    port = free_port()
    return ServerProcess((*command, str(port)), port)


def serve_bundle(bundle: Path, *options: str) -> ServerProcess:
    """Return a server for one bundle, not yet started.

    Args:
        bundle: to serve.
        options: more arguments for `offramp serve`.
    """
    return on_free_port(OFFRAMP, "serve", str(bundle), "--host", HOST, *options, "--port")


def free_port() -> int:
    """Return a port of 127.0.0.1 on which nothing listens now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port
