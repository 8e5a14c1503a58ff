"""The two loads that every contender gets, by a client that costs next to nothing."""

import asyncio
import json
import random
import time
from collections.abc import Sequence
from itertools import count
from typing import NamedTuple

from loadtest.http.client import Json
from loadtest.load.arrivals import due_times

_TIMEOUT_S = 60.0
_MOST_OUTSTANDING = 256


class TimedAnswer(NamedTuple):
    """The answer to one request."""

    place: int
    latency_s: float  # from when it was due, or sent, to the last byte of its answer
    status: int  # HTTP status; 0 without an answer
    body: bytes  # unparsed; the error if there is no answer

    def shown(self) -> str:
        """Return what a message says of it."""
        return f"{self.status}: {self.body[:200].decode(errors='replace')}"


class ClosedLoop(NamedTuple):
    """Clients that send the next request when the last is answered."""

    clients: int
    seconds: float  # how long at least; every text is sent once in any case
    limit_s: float  # how long at most


class Loaded(NamedTuple):
    """The answers to a load."""

    answers: list[TimedAnswer]  # in order of their end
    seconds: float  # from the first request to the last answer


class _Connection:
    """A kept-alive connection to a port of 127.0.0.1, with one request at a time.

    A server that says `Connection: close` gets a new one, as HAProxy demands when it reloads.
    """

    _writer: asyncio.StreamWriter | None = None

    def __init__(self, port: int) -> None:
        self._port = port

    def close(self) -> None:
        """Close it; the next request opens it again."""
        if self._writer:
            self._writer.close()
        self._writer = None

    async def send(self, request: bytes, place: int, since_s: float) -> TimedAnswer:
        """Send a request and wait for its answer; a failure is an answer with status 0."""
        status, body = 0, b""
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                status, body = await self._asked(request)
        except (OSError, EOFError, ValueError, TimeoutError) as error:
            body = repr(error).encode()
        return TimedAnswer(place, time.perf_counter() - since_s, status, body)

    async def _asked(self, request: bytes) -> tuple[int, bytes]:
        if not self._writer:
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writer.write(request)
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        answer = await self._answer(head.split(b"\r\n"))
        if b"\r\nconnection: close" in head:
            self.close()
        return answer

    async def _answer(self, lines: Sequence[bytes]) -> tuple[int, bytes]:
        for line in lines[1:]:
            name, _, value = line.partition(b":")
            if name == b"content-length":
                return int(lines[0].split()[1]), await self._reader.readexactly(int(value))
            if name == b"transfer-encoding":
                return int(lines[0].split()[1]), await self._chunks()
        raise ValueError("the answer has no Content-Length")

    async def _chunks(self) -> bytes:
        body = b""
        while size := int(await self._reader.readuntil(b"\r\n"), 16):
            body += (await self._reader.readexactly(size + 2))[:-2]
        await self._reader.readuntil(b"\r\n")
        return body


def request_bytes(body: Json, path: str = "/v1/classify") -> bytes:
    """Return a POST with this body."""
    content = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


async def status_of(port: int, request: bytes) -> int:
    """Send one request and return the status of its answer; 0 without one."""
    connection = _Connection(port)
    answer = await connection.send(request, 0, 0.0)
    connection.close()
    return answer.status


async def saturate(port: int, requests: Sequence[bytes], load: ClosedLoop) -> Loaded:
    """Send the requests in turn, in a closed loop."""
    began_s = time.perf_counter()
    places = count()
    answers: list[TimedAnswer] = []

    def goes_on() -> bool:
        passed_s = time.perf_counter() - began_s
        unfinished = passed_s < load.seconds or len(answers) < len(requests)
        return passed_s <= load.limit_s and unfinished

    async def client() -> None:
        connection = _Connection(port)
        while goes_on():
            place = next(places) % len(requests)
            answers.append(await connection.send(requests[place], place, time.perf_counter()))
            if not answers[-1].status:
                break
        connection.close()

    await asyncio.gather(*(client() for _ in range(load.clients)))
    return Loaded(answers, time.perf_counter() - began_s)


async def arrive(
    port: int,
    requests: Sequence[bytes],
    per_second: float,
    seconds: float,
    most_outstanding: int = _MOST_OUTSTANDING,
) -> Loaded:
    """Send requests in an open loop with Poisson arrivals, the same for every contender.

    A request that is due while so many are outstanding is an answer without a status.
    """
    began_s = time.perf_counter()
    idle: list[_Connection] = []
    answers: list[TimedAnswer] = []

    async def send(place: int, due_s: float) -> None:
        connection = idle.pop() if idle else _Connection(port)
        answers.append(await connection.send(requests[place], place, due_s))
        if answers[-1].status:
            idle.append(connection)

    async with asyncio.TaskGroup() as group:
        outstanding: set[asyncio.Task[None]] = set()
        due = due_times("poisson", per_second, began_s, random.Random(0))
        for number, due_s in enumerate(due):
            if due_s - began_s > seconds:
                break
            await asyncio.sleep(due_s - time.perf_counter())
            place = number % len(requests)
            if len(outstanding) >= most_outstanding:
                answers.append(TimedAnswer(place, 0.0, 0, b"too many outstanding"))
                continue
            task = group.create_task(send(place, due_s))
            outstanding.add(task)
            task.add_done_callback(outstanding.discard)
    for connection in idle:
        connection.close()
    return Loaded(answers, time.perf_counter() - began_s)
