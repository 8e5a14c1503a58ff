"""`offramp serve` as a child process that never outlives its block."""

import os
import signal
import socket
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from loadtest.http.client import Client
from loadtest.http.interruption import held_back
from serve.errors import OfframpError

HOST = "127.0.0.1"
OFFRAMP = str(Path(sysconfig.get_path("scripts")) / "offramp")
_LOG_LINES = 40
_POLL_S = 0.2
_STOP_S = 60.0


class ServerFailed(OfframpError):
    """The server did not start, or did not stop as it should; the message has its last lines."""


class ServerProcess:
    """A child process that listens on `url`; the end of the block ends it in any case."""

    def __init__(self, command: Sequence[str], url: str) -> None:
        self.url = url
        self.command = command
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with held_back():
            self._log = tempfile.TemporaryFile()
            self._process = start_in_session(self.command, self._log)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        unimportant = (ServerFailed,) if error else ()
        with held_back(), self._log, suppress(*unimportant):
            self.stop()

    @property
    def pid(self) -> int | None:
        """The child's process id, which is also its session's; None while it does not run."""
        return self._process.pid if self._process else None

    def wait_until_ready(self, timeout_s: float, tick: Callable[[float], None]) -> float:
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
            if self._ended_within(_POLL_S):
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
        if self._process is None:
            return
        process, self._process = self._process, None
        ran = process.poll() is None
        code = _end(process)
        num_killed = _kill_session(process.pid)
        process.wait()
        if num_killed:
            raise ServerFailed(
                f"{num_killed} processes of the server did not end and were killed:\n"
                f"{self.last_lines()}"
            )
        if ran and code not in (0, -signal.SIGTERM):
            raise ServerFailed(f"the server ended with status {code}:\n{self.last_lines()}")

    def last_lines(self) -> str:
        """Return the end of the server's output."""
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").splitlines()
        return "\n".join(lines[-_LOG_LINES:])

    def _ended_within(self, seconds: float) -> bool:
        if self._process is None:
            return True
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True


def start_in_session(command: Sequence[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own, so that Ctrl-C reaches this process only."""
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        start_new_session=True,
    )


def serve_bundle(bundle: Path, *options: str) -> ServerProcess:
    """Return a server for one bundle on a free port of 127.0.0.1, not yet started.

    Args:
        bundle: to serve.
        options: more arguments for `offramp serve`.
    """
    port = free_port()
    command = [OFFRAMP, "serve", str(bundle), "--host", HOST, "--port", str(port), *options]
    return ServerProcess(command, f"http://{HOST}:{port}")


def free_port() -> int:
    """Return a port of 127.0.0.1 on which nothing listens now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _end(process: subprocess.Popen[bytes]) -> int | None:
    """Send SIGTERM and return the exit status; None if the process does not end."""
    process.send_signal(signal.SIGTERM)
    try:
        return process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        return None


def _kill_session(session: int) -> int:
    """Kill the processes that are left of a session; return how many there were."""
    left = [pid for pid, of in _running() if of == session]
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(left)


def _running() -> Iterator[tuple[int, int]]:
    """Yield process and session ids from /proc (see proc(5)), zombies left out."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, _, session, *_ = stat.read_text().rpartition(")")[2].split()
            if state != "Z":
                yield int(stat.parent.name), int(session)
