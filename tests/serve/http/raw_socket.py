"""Sending bytes that are no good HTTP, and reading what comes back."""

import contextlib
import re
import socket
import time
from collections.abc import Sequence

# What may get no answer at all is not waited for longer than this.
_SILENCE_S = 0.5
# What closes its connection gets an answer, however busy the machine is.
_CLOSED_WITHIN_S = 60.0
# Between two pieces, so that the server reads them one by one.
_PAUSE_S = 0.01
_ANSWER = re.compile(rb"HTTP/1\.[01] ([2-5]\d\d) ")


def exchange(port: int, pieces: Sequence[bytes], silence_s: float = _SILENCE_S) -> bytes:
    """Send pieces one by one; return what is sent back until the end or a silence."""
    with socket.create_connection(("127.0.0.1", port), timeout=silence_s) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(ConnectionError, TimeoutError):
            for number, piece in enumerate(pieces):
                if number and len(pieces) < 10:
                    time.sleep(_PAUSE_S)
                connection.sendall(piece)
        return _read(connection)


def exchange_until_closed(port: int, pieces: Sequence[bytes]) -> bytes:
    """Send pieces of a request that closes its connection; return all that is sent back."""
    return exchange(port, pieces, _CLOSED_WITHIN_S)


def _read(connection: socket.socket) -> bytes:
    received = []
    with contextlib.suppress(ConnectionError, TimeoutError):
        while part := connection.recv(65536):
            received.append(part)
    return b"".join(received)


def statuses(received: bytes) -> list[int]:
    """Return the status of each final answer."""
    return [int(status) for status in _ANSWER.findall(received)]
