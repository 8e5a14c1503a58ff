"""What ASGI apps do, and what becomes of it on a connection without a socket."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import serve.http.connection
from serve.http.exchange import MAX_HELD_BYTES
from serve.http.framing import MAX_CHUNKS_AT_ONCE
from serve.http.settings import ConnectionLimits
from tests.serve.http.talk import Talk

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"


def answering(
    *parts: bytes, headers: list[tuple[bytes, bytes]] | None = None, status: int = 200
) -> ASGIApp:
    """Return an app that answers with a body in parts."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": status, "headers": headers or []})
        for number, part in enumerate(parts, 1):
            more = number < len(parts)
            await send({"type": "http.response.body", "body": part, "more_body": more})

    return app


def told(app: ASGIApp, *sent: bytes) -> tuple[bytes, bytes, bool]:
    """Return head and body of all that is answered, and whether the connection was closed."""

    async def talk() -> tuple[bytes, bytes, bool]:
        there = Talk(app)
        head, _, body = (await there.send(*sent)).partition(b"\r\n\r\n")
        return head, body, there.transport.closed

    return asyncio.run(talk())


def length(num_bytes: int) -> list[tuple[bytes, bytes]]:
    return [(b"content-length", b"%d" % num_bytes)]


def test_short_answer_is_one_write() -> None:
    async def scenario() -> None:
        there = Talk(answering(b"hello", headers=length(5)))
        await there.send(GET)
        (whole,) = there.transport.written
        assert whole.startswith(b"HTTP/1.1 200 OK\r\ndate: ")
        assert whole.endswith(b"\r\ncontent-length: 5\r\n\r\nhello")
        assert not there.transport.closed

    asyncio.run(scenario())


def test_answer_of_unknown_length_comes_in_chunks_or_ends_with_the_connection() -> None:
    app = answering(b"hello", b"", b"!")
    head, body, closed = told(app, GET)
    assert b"transfer-encoding: chunked" in head
    assert (body, closed) == (b"5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n", False)
    head, body, closed = told(app, GET.replace(b"1.1", b"1.0"))
    assert b"transfer-encoding" not in head
    assert b"connection: close" in head
    assert (body, closed) == (b"hello!", True)


HEAD = GET.replace(b"GET", b"HEAD")
CHUNKED = GET.replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n")
HELLO = answering(b"hello", headers=length(5))


@pytest.mark.parametrize(
    ("app", "sent", "status", "body", "closed"),
    [
        (answering(b"hello"), [HEAD], 200, b"", False),
        (answering(b"hello", status=204), [GET], 204, b"", False),
        (answering(b"hello", status=304), [GET], 304, b"", False),
        (answering(), [HEAD], 500, b"", True),
        # What comes behind the answer is malformed, is not wanted, or is not answered.
        (HELLO, [CHUNKED, b"x\r\n"], 200, b"hello", True),
        (
            answering(b"hello", headers=[(b"connection", b"close"), *length(5)]),
            [GET + GET, GET],
            *(200, b"hello", True),
        ),
        (answering(b"hel", b"", headers=length(5)), [GET + GET], 200, b"hel", True),
    ],
)
def test_answer_has_its_body_and_the_connection_its_end(
    app: ASGIApp, sent: list[bytes], status: int, body: bytes, closed: bool
) -> None:
    head, *rest = told(app, *sent)
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert b"transfer-encoding" not in head
    assert rest == [body, closed]


@pytest.mark.parametrize(
    "app",
    [
        answering(b"", headers=[(b"x", b"a\r\nSet-Cookie: b")]),
        answering(b"", headers=[(b"x", b"a\nb")]),
        answering(b"", headers=[(b"x", b"a\rb")]),
        answering(b"", headers=[(b"x: y\r\nz", b"a")]),
        answering(b"hello!", headers=length(5)),
        answering(b"hell", headers=length(5)),
        answering(status=200),
        lambda scope, receive, send: send({"type": "http.response.body"}),
        lambda scope, receive, send: send({"type": "no such thing"}),
    ],
)
def test_app_that_gives_no_good_answer_is_answered_for(
    app: ASGIApp, caplog: pytest.LogCaptureFixture
) -> None:
    head, body, closed = told(app, GET)
    assert head.startswith(b"HTTP/1.1 500 Internal Server Error\r\n")
    assert b"Set-Cookie" not in head
    assert (body, closed) == (b"internal error; the server's log has the cause", True)
    assert caplog.records


@pytest.mark.parametrize(
    ("head", "piece"),
    [
        (CHUNKED, b"40\r\n" + b"x" * 64 + b"\r\n"),
        (CHUNKED, b"2710\r\n" + b"x" * 10_000 + b"\r\n"),
        (POST % 10**9, b"x" * 10_000),
    ],
)
def test_body_that_goes_on_after_its_answer_ends_the_connection(
    head: bytes, piece: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve.http.connection, "MAX_DISCARDED_BYTES", 100 * len(piece))

    async def scenario() -> None:
        there = Talk(answering(b"hello", headers=length(5)))
        await there.send(head, piece * 99)
        assert not there.transport.closed, "some clients send all before they read the answer"
        await there.send(piece, piece)
        assert there.transport.closed
        assert (await there.send(piece)).endswith(b"hello")

    asyncio.run(scenario())


@pytest.mark.parametrize("answered", [True, False])
def test_connection_with_many_chunks_lets_others_have_their_turn(answered: bool) -> None:
    async def scenario(app: Reader, there: Talk) -> None:
        if answered:
            app.answer.set()
        await there.send(CHUNKED)
        there.connection.data_received(b"1\r\nx\r\n" * (MAX_CHUNKS_AT_ONCE + 1))
        assert there.transport.paused
        await there.send()
        assert not there.transport.paused
        assert (await there.send(b"0\r\n\r\n" + GET)).count(b"200 OK") == 2 * answered
        there.connection.connection_lost(None)

    reading(scenario)


def test_what_follows_the_last_request_is_read_and_dropped() -> None:
    async def scenario(app: Reader, there: Talk) -> None:
        await there.send(GET.replace(b"1.1", b"1.0") + GET, GET)
        assert not there.transport.paused  # else it would reset the connection at its end
        app.answer.set()
        app.read.release()
        assert (await there.send()).endswith(b"\r\n\r\n/")
        assert there.transport.closed

    reading(scenario)


class Reader:
    """Notes what it is sent, and answers once told to."""

    def __init__(self) -> None:
        self.received: list[Message] = []
        self.cancelled, self.num_asked = False, 0
        self.read, self.answer = asyncio.Semaphore(0), asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.num_asked += 1
        try:
            await self._answer(scope, receive, send)
        except asyncio.CancelledError:
            self.cancelled = True
            raise

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        while not self.answer.is_set():
            await self.read.acquire()
            self.received.append(await receive())
        await answering(scope["path"].encode(), headers=length(len(scope["path"])))(
            scope, receive, send
        )


def reading(scenario: Callable[[Reader, Talk], Any]) -> None:
    """Run a scenario with an app that reads when it may."""

    async def run() -> None:
        app = Reader()
        await scenario(app, Talk(app))

    asyncio.run(run())


def test_app_is_told_of_the_body_and_cancelled_when_the_client_leaves() -> None:
    async def scenario(app: Reader, there: Talk) -> None:
        for _ in range(3):
            app.read.release()
        await there.send(POST % 5)
        assert not app.received
        await there.send(b"he")
        await there.send(b"llo")
        assert app.received == [
            {"type": "http.request", "body": b"he", "more_body": True},
            {"type": "http.request", "body": b"llo", "more_body": False},
        ]
        assert not app.cancelled
        there.connection.connection_lost(None)
        await there.send()
        assert app.cancelled

    reading(scenario)


def test_client_is_told_to_continue_when_the_app_wants_the_body() -> None:
    async def scenario(app: Reader, there: Talk) -> None:
        head = (POST % 5)[:-2] + b"Expect: 100-continue\r\n\r\n"
        assert await there.send(head) == b""
        app.read.release(), app.read.release()
        assert await there.send() == b"HTTP/1.1 100 Continue\r\n\r\n"
        await there.send(b"hello")
        assert app.received[0]["body"] == b"hello"
        app.answer.set()
        there.connection.connection_lost(None)

    reading(scenario)


@pytest.mark.parametrize("num_bytes", [100_000, 300_000])
def test_reading_pauses_until_the_app_has_read_and_wants_more(num_bytes: int) -> None:
    async def scenario(app: Reader, there: Talk) -> None:
        await there.send(POST % num_bytes, bytes(100_000))
        assert there.transport.paused
        app.read.release(), app.read.release()
        await there.send()
        assert len(app.received[0]["body"]) == 100_000
        assert not there.transport.paused
        there.connection.connection_lost(None)
        app.answer.set()

    reading(scenario)


def test_what_comes_behind_a_request_is_held_up_to_a_bound() -> None:
    async def scenario(app: Reader, there: Talk) -> None:
        await there.send(GET, GET, bytes(MAX_HELD_BYTES))
        assert there.transport.paused
        app.answer.set()
        there.connection.connection_lost(None)

    reading(scenario)


def test_requests_that_come_at_once_are_answered_in_order() -> None:
    async def scenario(app: Reader, there: Talk) -> None:
        sent = b"".join(GET.replace(b"/ ", b"/%d " % number) for number in range(4))
        app.answer.set()
        app.read.release()
        there.connection.data_received(sent[:-1])
        assert not there.transport.paused, "the end of the connection must be seen"
        whole = await there.send()
        assert [
            whole[at + 4 :][:2] for at in range(len(whole)) if whole[at:].startswith(b"\r\n\r\n")
        ] == [b"/0", b"/1", b"/2"]
        assert not there.transport.paused
        assert (await there.send(b"\n")).endswith(b"\r\n\r\n/3")

    reading(scenario)


def test_next_request_waits_until_the_client_has_taken_the_last_answer() -> None:
    async def scenario(app: Reader, there: Talk) -> None:
        app.answer.set()
        app.read.release()
        there.connection.pause_writing()
        await there.send(GET.replace(b"/ ", b"/1 ") + GET.replace(b"/ ", b"/2 "))
        assert not there.transport.written
        there.connection.resume_writing()
        there.transport.fill = there.connection.pause_writing  # by the first answer
        assert (await there.send()).endswith(b"/1")
        assert app.num_asked == 1
        there.transport.fill = lambda: None
        there.connection.resume_writing()
        assert (await there.send()).endswith(b"/2")
        assert not there.running

    reading(scenario)


def test_answer_may_take_as_long_as_its_client_takes_something_of_it() -> None:
    async def scenario() -> None:
        limit_s = ConnectionLimits().idle_timeout_s
        there = Talk(answering(b"a", b"b", b"c", b"d", headers=length(4)))
        there.transport.fill = there.connection.pause_writing
        now_s = 0.0
        await there.send(GET)
        for taken in (b"b", b"c"):
            for _ in range(2):
                there.connection.sweep(now_s := now_s + 0.6 * limit_s)
                assert not there.transport.aborted
            there.connection.resume_writing()
            assert (await there.send()).endswith(taken)
        for _ in range(3):
            there.connection.sweep(now_s := now_s + 0.6 * limit_s)
        assert there.transport.aborted

    asyncio.run(scenario())


def test_app_that_fails_while_its_client_takes_nothing_ends_the_connection_at_once() -> None:
    async def scenario() -> None:
        there = Talk(answering(b"a", b"b", headers=length(2)))
        there.transport.fill = there.connection.pause_writing
        await there.send(GET)
        (task,) = there.running
        task.cancel()
        await there.send()
        assert there.transport.aborted

    asyncio.run(scenario())


def test_app_waits_while_the_client_takes_its_answer() -> None:
    async def scenario() -> None:
        there = Talk(answering(b"he", b"llo", headers=length(5)))
        there.connection.pause_writing()
        assert await there.send(GET) == b""
        there.connection.resume_writing()
        assert (await there.send()).endswith(b"hello")
        there.connection.pause_writing()
        await there.send(GET)
        assert there.running
        there.connection.connection_lost(None)
        await there.send()
        assert not there.running

    asyncio.run(scenario())
