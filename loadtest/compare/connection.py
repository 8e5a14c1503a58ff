"""A minimal HTTP client, so that the load costs next to nothing."""

import asyncio
import json
import time
from typing import NamedTuple, Self

from loadtest.http.client import Json

_TIMEOUT_S = 60.0


class TimedAnswer(NamedTuple):
    """The answer to one request."""

    place: int
    latency_s: float  # from when it was due, or sent, to the last byte of its answer
    status: int  # HTTP status; 0 without an answer
    body: bytes  # unparsed; the error if there is no answer


class Connection:
    """One kept-alive connection with one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, port: int) -> Self:
        """Connect to this port of 127.0.0.1."""
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def send(self, request: bytes, place: int, since_s: float) -> TimedAnswer:
        """Send a request and wait for its answer; a failure is an answer with status 0."""
        status, body = 0, b""
        try:
            self._writer.write(request)
            async with asyncio.timeout(_TIMEOUT_S):
                status, body = await self._answer()
        except (OSError, EOFError, ValueError, TimeoutError) as error:
            body = repr(error).encode()
        return TimedAnswer(place, time.perf_counter() - since_s, status, body)

    async def _answer(self) -> tuple[int, bytes]:
        head = await self._reader.readuntil(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        for line in lines[1:]:
            name, _, value = line.partition(b":")
            if name == b"content-length":
                return int(lines[0].split()[1]), await self._reader.readexactly(int(value))
        raise ValueError("the answer has no Content-Length")

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()


def request_bytes(body: Json) -> bytes:
    """Return a POST /v1/classify with this body."""
    content = json.dumps(body).encode()
    head = (
        "POST /v1/classify HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content
