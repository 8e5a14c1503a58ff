"""Brings the log lines of replicas to the command that has started them."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from serve.errors import Unavailable
from serve.log_output import Output

# Of one message. The kernel takes some 200 KB, and keeps messages whole and in their order.
_MOST_BYTES: Final = 128 * 1024


@contextmanager
def collecting(path: Path, output: Output) -> Iterator[None]:
    """Write the lines that replicas send to a Unix socket, for as long as the block takes.

    Where the output takes no more, the replicas' own queues fill up and count what they leave out.

    Raises:
        Unavailable: the socket cannot be made.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as taken:
        try:
            taken.bind(str(path))
        except OSError as error:
            raise Unavailable(
                f"no socket for log lines can be made at {path}: {error.strerror or error}; "
                "set RAY_TMPDIR to another folder"
            ) from None
        reader = threading.Thread(target=_write_all, args=(taken, output), daemon=True)
        reader.start()
        try:
            yield
        finally:
            # An empty message stands behind all others.
            with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as own:
                own.settimeout(2.0)
                own.sendto(b"", str(path))
                reader.join(2.0)


def _write_all(taken: socket.socket, output: Output) -> None:
    while lines := taken.recv(_MOST_BYTES):
        output.write(lines)


class LogSocket:
    """The replica's end: sends lines to the command."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)

    def write(self, lines: bytes) -> None:
        """Send whole lines; wait while the command takes none. A line of 128 KiB is cut.

        Raises:
            OSError: the command does not listen.
        """
        message = b""
        for line in lines.splitlines(keepends=True):
            if len(message) + len(line) > _MOST_BYTES and message:
                self._socket.sendto(message, self._path)
                message = b""
            message += line if len(line) <= _MOST_BYTES else line[: _MOST_BYTES - 1] + b"\n"
        if message:
            self._socket.sendto(message, self._path)

    def close(self) -> None:
        """Send no more."""
        self._socket.close()
