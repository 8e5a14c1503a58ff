"""A connection of an app, without a socket."""

import asyncio
from collections.abc import Callable
from typing import Any

from starlette.types import ASGIApp

from serve.http.answer import in_plain_text
from serve.http.connection import Connection
from serve.http.open_connections import OpenConnections
from serve.http.settings import ConnectionLimits, ConnectionState


class Recorded(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.fill: Callable[[], None] = lambda: None  # is called by each write
        self.closed = self.paused = self.aborted = False

    def get_write_buffer_size(self) -> int:
        return 0

    def abort(self) -> None:
        self.aborted = True

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))
        self.fill()

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False


class Talk:
    """A connection of an app; each piece is worked on as far as it goes."""

    def __init__(self, app: ASGIApp) -> None:
        connections = OpenConnections(ConnectionLimits(), ConnectionState())
        self.transport, self.running = Recorded(), set[asyncio.Task[None]]()
        self.connection = Connection(app, connections, self.running, in_plain_text)
        self.connection.connection_made(self.transport)

    async def send(self, *pieces: bytes) -> bytes:
        """Return all that is answered so far."""
        for piece in pieces or (b"",):
            self.connection.data_received(piece)
            for _ in range(20):
                await asyncio.sleep(0)
        return b"".join(self.transport.written)
