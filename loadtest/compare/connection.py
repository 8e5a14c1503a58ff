"""As little of an HTTP client as asks a question: the load should cost next to nothing."""

import asyncio
import json
import time
from typing import NamedTuple, Self

from loadtest.http.client import Json

_TIMEOUT_S = 60.0


class Answered(NamedTuple):
    """One request.

    Attributes:
        place: of its text.
        latency_s: from when it was due, or sent, to the last byte of its answer.
        status: HTTP status; 0 where there was none.
        body: the answer, unread.
    """

    place: int
    latency_s: float
    status: int
    body: bytes


class Wire:
    """One connection, kept alive; one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, port: int) -> Self:
        """Connect to this port of the loopback device."""
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def ask(self, request: bytes, place: int, since_s: float) -> Answered:
        """Send a request and wait for its answer; never raises for what the server does."""
        status, body = 0, b""
        try:
            self._writer.write(request)
            async with asyncio.timeout(_TIMEOUT_S):
                status, body = await self._answer()
        except (OSError, EOFError, ValueError, TimeoutError) as error:
            body = repr(error).encode()
        return Answered(place, time.perf_counter() - since_s, status, body)

    async def _answer(self) -> tuple[int, bytes]:
        head = await self._reader.readuntil(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        for line in lines[1:]:
            name, _, value = line.partition(b":")
            if name == b"content-length":
                return int(lines[0].split()[1]), await self._reader.readexactly(int(value))
        raise ValueError("the answer has no Content-Length")

    def close(self) -> None:
        """Hang up."""
        self._writer.close()


def request_bytes(body: Json) -> bytes:
    """Return a POST /v1/classify with this body."""
    content = json.dumps(body).encode()
    head = (
        "POST /v1/classify HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content
