"""Brings the log lines of replicas to the command that has started them."""

import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from serve.errors import Unavailable
from serve.log_output import Output, Write

_CHUNK_BYTES: Final = 64 * 1024
_POLL_EVERY_S: Final = 0.1
# The rest of what replicas have sent is waited for this long at the end.
_LAST_LINES_S: Final = 2.0


@contextmanager
def collecting(path: Path, output: Output) -> Iterator[None]:
    """Take lines on a Unix socket and write them, whole ones only, for as long as the block takes.

    A thread for each replica reads. Where the output takes no more, the replicas' own queues fill
    up and count what they leave out.

    Raises:
        Unavailable: the socket cannot be made.
    """

    class Reader(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            _copy_lines(self.request, output.write)

    try:
        server = _Server(str(path), Reader)
    except OSError as error:
        why = error.strerror or str(error)
        raise Unavailable(
            f"no socket for log lines can be made at {path}: {why}; "
            "set RAY_TMPDIR to another folder"
        ) from None
    accepting = threading.Thread(target=server.serve_forever, args=(_POLL_EVERY_S,), daemon=True)
    accepting.start()
    with server:
        try:
            yield
        finally:
            server.shutdown()
            server.take_last()


class LogSocket:
    """The replica's end: writes lines to the command."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: socket.socket | None = None

    def write(self, lines: bytes) -> None:
        """Send lines; wait while the command takes none.

        Raises:
            OSError: the command does not listen.
        """
        new = self._connection is None
        connection = self._connection = self._connection or socket.socket(socket.AF_UNIX)
        try:
            if new:
                connection.connect(str(self._path))
            connection.sendall(lines)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """End the connection; the next lines make another one."""
        if self._connection:
            self._connection.close()
            self._connection = None


class _Server(socketserver.UnixStreamServer):
    """Reads each connection on a thread."""

    timeout = 0  # of `handle_request`

    def __init__(self, path: str, reader: type[socketserver.BaseRequestHandler]) -> None:
        super().__init__(path, reader)
        self._readers: list[threading.Thread] = []
        self._waiting = True

    def process_request(self, request: Any, client_address: Any) -> None:
        reader = threading.Thread(target=self._read, args=(request, client_address), daemon=True)
        self._readers.append(reader)
        reader.start()

    def handle_timeout(self) -> None:
        self._waiting = False

    def take_last(self) -> None:
        """Read what has been sent on every connection, also on those that still wait."""
        while self._waiting:
            self.handle_request()
        for reader in self._readers:
            reader.join(_LAST_LINES_S)

    def _read(self, request: Any, client_address: Any) -> None:
        try:
            self.finish_request(request, client_address)
        finally:
            self.shutdown_request(request)


def _copy_lines(connection: socket.socket, write: Write) -> None:
    """Write what comes, up to the last end of a line; at the end the rest, as a line."""
    begun = b""
    while received := connection.recv(_CHUNK_BYTES):
        lines, end, rest = received.rpartition(b"\n")
        if end:
            write(begun + lines + end)
            begun = rest
        else:
            begun += rest
    if begun:
        write(begun + b"\n")
