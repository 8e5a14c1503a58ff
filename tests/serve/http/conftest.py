"""Servers with short limits, and clients that hold nothing back."""

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

import serve.http.open_connections
from serve.access.held_bytes import HeldBytes
from serve.assembly import http_app
from serve.http.settings import ConnectionLimits, ConnectionState
from serve.standalone import standalone_context
from tests.serve.support.live_server import LiveServer, Problem, config_of, listening

LIVE = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Client:
    """A connection on which any bytes can be sent."""

    def __init__(self, port: int, receive_buffer_bytes: int | None = None) -> None:
        self.socket = socket.socket()
        if receive_buffer_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.settimeout(30)
        self.socket.connect(("127.0.0.1", port))

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def answer(self) -> bytes:
        """Read one answer, which has a `Content-Length`, or up to the end of the connection."""
        head = self._until(lambda read: read.endswith(b"\r\n\r\n"))
        found = [v for k, v in _headers(head) if k == "content-length"]
        num_bytes = len(head) + int(found[0]) if found else len(head)
        return head + self._until(lambda read: len(read) == num_bytes - len(head))

    def rest(self) -> bytes:
        """Read until the server closes the connection."""
        return self._until(lambda read: False)

    def open(self) -> bool:
        """Tell whether nothing came and the connection is still open."""
        self.socket.settimeout(0.001)
        try:
            return self.socket.recv(1) != b""
        except TimeoutError:
            return True
        except OSError:
            return False
        finally:
            self.socket.settimeout(30)

    def _until(self, complete: Callable[[bytes], bool]) -> bytes:
        read = b""
        with suppress(ConnectionResetError):
            while not complete(read) and (byte := self.socket.recv(1)):
                read += byte
        return read


class Served(NamedTuple):
    """A server, what it says of its connections and answers, and clients for it."""

    live: LiveServer
    state: ConnectionState
    answers: HeldBytes
    connect: Callable[..., Client]


StartLimited = Callable[..., Served]


@pytest.fixture
def start_limited(bundle_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StartLimited]:
    """Serve the tiny bundle with some `ConnectionLimits`, which are looked at often."""
    monkeypatch.setattr(serve.http.open_connections, "SWEEP_EVERY_S", 0.02)
    with ExitStack() as stack:

        def start(**limits: Any) -> Served:
            state, connections = ConnectionState(), ConnectionLimits(**limits)
            config = config_of(bundle_folder)
            context = standalone_context(config, state)
            app = http_app(config, context)
            live = stack.enter_context(listening(app, connections, state))

            def connect(**options: Any) -> Client:
                client = Client(live.port, **options)
                stack.callback(client.socket.close)
                return client

            return Served(live, state, context.answers, connect)

        yield start


def refusal(raw: bytes) -> Problem:
    """Return the only answer in some bytes, which must end its connection."""
    head, _, body = raw.partition(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1])
    response = httpx.Response(status, headers=_headers(head), content=body)
    assert response.headers["connection"] == "close"
    assert int(response.headers["content-length"]) == len(body)
    return Problem.of(response)


def _headers(head: bytes) -> list[tuple[str, str]]:
    lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")[1:]
    return [(k.lower(), v.strip()) for k, _, v in (line.partition(":") for line in lines)]
