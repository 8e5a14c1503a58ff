"""A server of one's own: `offramp serve` as a child process that never outlives its block."""

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
from typing import Self

from loadtest.http.client import Client
from loadtest.http.interruption import held_back

HOST = "127.0.0.1"
_LOG_LINES = 40
_POLL_S = 0.2
_STOP_S = 60.0


class ServerFailed(Exception):
    """The server did not start, or did not stop as it should; the message has its last lines."""


class ServerProcess:
    """A child process that listens on `url`; leaving the block ends it, whatever happened."""

    def __init__(self, command: Sequence[str], url: str) -> None:
        self.url = url
        self.command = command
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with held_back():
            self._log = tempfile.TemporaryFile()
            # A session of its own: Ctrl-C reaches this process only, which then stops the child.
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                start_new_session=True,
            )
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
        """The child's process id, which is its session's too; None while it does not run."""
        return self._process.pid if self._process else None

    def wait_until_ready(self, timeout_s: float, tick: Callable[[float], None]) -> float:
        """Wait until the server answers on /health/ready and return the seconds it took.

        Args:
            timeout_s: when to give up.
            tick: called with the seconds waited, several times a second.

        Raises:
            ServerFailed: it ended, or was not ready in time.
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
        """End the server with SIGTERM and verify that nothing of it is left.

        Raises:
            ServerFailed: it ended with an error, or something of it had to be killed.
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
        """Return the end of what the server has printed."""
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


def serve_bundle(bundle: Path, *options: str) -> ServerProcess:
    """Return a server, not yet started, for one bundle on a free port of the loopback device.

    Args:
        bundle: what to serve.
        options: more words for `offramp serve`.
    """
    port = free_port()
    offramp = str(Path(sysconfig.get_path("scripts")) / "offramp")
    command = [offramp, "serve", str(bundle), "--host", HOST, "--port", str(port), *options]
    return ServerProcess(command, f"http://{HOST}:{port}")


def free_port() -> int:
    """Return a port of the loopback device that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _end(process: subprocess.Popen[bytes]) -> int | None:
    """Ask a process to end and return its exit status; None if it does not."""
    process.send_signal(signal.SIGTERM)
    try:
        return process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        return None


def _kill_session(session: int) -> int:
    """Kill what is left of a session; return how many processes that were."""
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
