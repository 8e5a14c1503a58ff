"""Sending bytes that are no good HTTP, and reading what comes back."""

import contextlib
import re
import socket
import time
from collections.abc import Sequence

# An answer that takes longer than this after the last byte is not waited for.
SILENCE_S = 0.5
# Between two pieces, so that the server reads them one by one.
_PAUSE_S = 0.01
_ANSWER = re.compile(rb"HTTP/1\.[01] ([2-5]\d\d) ")


def exchange(port: int, pieces: Sequence[bytes]) -> bytes:
    """Send pieces one by one; return what is sent back until the end or a silence."""
    with socket.create_connection(("127.0.0.1", port), timeout=SILENCE_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(ConnectionError, TimeoutError):
            for number, piece in enumerate(pieces):
                if number and len(pieces) < 10:
                    time.sleep(_PAUSE_S)
                connection.sendall(piece)
        return _read(connection)


def _read(connection: socket.socket) -> bytes:
    received = []
    with contextlib.suppress(ConnectionError, TimeoutError):
        while part := connection.recv(65536):
            received.append(part)
    return b"".join(received)


def statuses(received: bytes) -> list[int]:
    """Return the status of each final answer."""
    return [int(status) for status in _ANSWER.findall(received)]
