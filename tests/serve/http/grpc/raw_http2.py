"""HTTP/2 by hand: clients that send no message, or take no answer."""

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.patience import until

_DATA, _HEADERS, _SETTINGS, _WINDOW_UPDATE = 0, 1, 4, 8
_END_STREAM, _END_HEADERS = 1, 4
_INITIAL_WINDOW_SIZE = 4


class RawHttp2:
    """A connection on which calls are begun; what comes back is counted and dropped."""

    def __init__(self, address: str, window: int) -> None:
        """Connect; `window` is how many bytes of each answer are taken unasked."""
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)))
        self._num_calls = 0
        settings = struct.pack(">HI", _INITIAL_WINDOW_SIZE, window)
        self.socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(_SETTINGS, 0, 0, settings))

    def call(
        self, path: str, message: bytes | None = None, metadata: tuple[tuple[str, str], ...] = ()
    ) -> int:
        """Begin a call, with its message if there is one; return its stream."""
        stream = 2 * self._num_calls + 1
        self._num_calls += 1
        fields = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "a")]
        fields += [("te", "trailers"), ("content-type", "application/grpc"), *metadata]
        head = b"".join(b"\0" + _text(name) + _text(value) for name, value in fields)
        sent = _frame(_HEADERS, _END_HEADERS, stream, head)
        if message is not None:
            data = b"\0" + struct.pack(">I", len(message)) + message
            sent += _frame(_DATA, _END_STREAM, stream, data)
        self.socket.sendall(sent)
        return stream

    def take(self, stream: int) -> None:
        """Let the answer to a call come."""
        more = struct.pack(">I", 1 << 20)
        self.socket.sendall(_frame(_WINDOW_UPDATE, 0, stream, more))


@contextmanager
def raw_http2(address: str, window: int = 65535) -> Iterator[RawHttp2]:
    client = RawHttp2(address, window)
    with client.socket:
        until(lambda: client.socket.recv(65536))
        yield client


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    size = struct.pack(">I", len(payload))[1:]
    return size + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def _text(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()
