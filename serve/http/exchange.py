"""One request and its answer, as an ASGI app reads and writes them."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from starlette.types import ASGIApp, Message, Scope

from serve.errors import STOPS, OfframpError
from serve.http.answer import CLOSE, CONTINUE, DescribeError, answer_head
from serve.http.head import Head, Header
from serve.http.settings import ConnectionState

log = logging.getLogger(__name__)

# Reading pauses when so much of a body waits for the app, or so much waits behind a body.
MAX_HELD_BYTES: Final = 64 * 1024
# Bytes of an answer that may wait in a connection's buffer while the next request is worked on.
MAX_UNSENT_BYTES: Final = 16 * 1024
_INTERNAL: Final = OfframpError("internal error; the server's log has the cause")


class Channel:
    """What the exchanges of a connection share.

    Attributes:
        transport: the connection's transport.
        state: the server's state.
        news: set when more of a body has come, or an exchange is over.
        writable: set unless the client has to take its answer first.
        paused: whether nothing is read, because what came waits.
        num_writes: how often something was written.
    """

    def __init__(
        self, transport: asyncio.Transport, state: ConnectionState, describe: DescribeError
    ) -> None:
        self.transport, self.state, self._describe = transport, state, describe
        self.news, self.writable = asyncio.Event(), asyncio.Event()
        self.writable.set()
        self.paused = False
        self.num_writes = 0
        transport.set_write_buffer_limits(MAX_UNSENT_BYTES)

    async def write(self, data: bytes) -> None:
        """Write, and return once the client has taken all but `MAX_UNSENT_BYTES` at most."""
        self.num_writes += 1
        self.transport.write(data)
        if not self.writable.is_set():
            await self.writable.wait()

    def write_error(self, error: OfframpError, method: str = "") -> None:
        """Write a whole answer that closes its connection; to HEAD it has no body."""
        headers, body = self._describe(error)
        length = (b"content-length", b"%d" % len(body))
        head = answer_head(error.status, [*headers, length], CLOSE)
        self.transport.write(head if method == "HEAD" else head + body)

    def pause(self) -> None:
        """Read nothing until `resume`."""
        if not self.paused:
            self.paused = True
            self.transport.pause_reading()

    def resume(self) -> None:
        """Read again."""
        if self.paused:
            self.paused = False
            self.transport.resume_reading()


class Exchange:
    """A request and its answer.

    Attributes:
        begun: part of the answer is on its way.
        over: the answer is complete, or will never be.
        keep_alive: another request may follow.
    """

    def __init__(
        self, head: Head, scope: Scope, channel: Channel, on_answered: Callable[[], None]
    ) -> None:
        self._scope, self._channel, self._on_answered = scope, channel, on_answered
        self._method, self._is_1_1 = head.method, head.http_version == "1.1"
        self._expects_continue = head.expects_continue
        self._body, self._more_body = bytearray(), True
        self._has_news = False  # more of the body, or its end, that the app has not seen
        self._head = b""  # of the answer, until part of the body goes with it
        self._without_body = self._chunked = False
        self._left: int | None = None  # of the answer's declared length
        self.begun = self.over = False
        self.keep_alive = head.keep_alive

    def feed(self, content: bytearray, ended: bool) -> None:
        """Take the next part of the body."""
        if self.over or not (content or ended):
            return
        self._body += content
        self._more_body, self._has_news = not ended, True
        if len(self._body) > MAX_HELD_BYTES:
            self._channel.pause()
        self._channel.news.set()

    def start(self, app: ASGIApp, running: set[asyncio.Task[None]]) -> None:
        """Let an app answer in a task, which is one of those running until then."""
        self._task = asyncio.get_running_loop().create_task(self._run(app, running))
        running.add(self._task)

    async def _run(self, app: ASGIApp, running: set[asyncio.Task[None]]) -> None:
        try:
            await app(self._scope, self.receive, self.send)
            if not self.over:
                raise RuntimeError("the app has returned without a whole answer")
        except STOPS:
            raise
        except BaseException:
            log.exception("the app has failed")
        finally:
            running.discard(self._task)
            if not self.over:
                self.fail(_INTERNAL)

    def lose(self) -> None:
        """Cancel the work: the client has left, and there may be an answer that it does not get."""
        if not self.over:
            self.over = True
            self._task.cancel()

    def fail(self, error: OfframpError) -> None:
        """Close the connection, with an error as answer if none has begun."""
        self.over = True
        self._channel.news.set()
        if not self.begun:
            self._channel.write_error(error, self._method)
        if self._channel.writable.is_set():
            self._channel.transport.close()
        else:  # the client may never take what is left
            self._channel.transport.abort()

    async def receive(self) -> Message:
        """Return the next part of the body; after its end, wait until the exchange is over."""
        if self._expects_continue and self._more_body and not (self.begun or self.over):
            self._channel.transport.write(CONTINUE)
        self._expects_continue = False
        while not (self.over or self._has_news):
            self._channel.news.clear()
            await self._channel.news.wait()
        if self.over:
            return {"type": "http.disconnect"}
        body, self._body, self._has_news = bytes(self._body), bytearray(), False
        # Reading goes on behind the body too, so that the server sees a client leave.
        self._channel.resume()
        return {"type": "http.request", "body": body, "more_body": self._more_body}

    async def send(self, message: Message) -> None:
        """Write a part of the answer, unless it is not wanted any more.

        Returns once the client has taken it, except for the last `MAX_UNSENT_BYTES`.
        """
        if not self._channel.writable.is_set():
            await self._channel.writable.wait()
        if self.over:
            return
        if message["type"] == "http.response.start":
            self._start(message["status"], list(message.get("headers", ())))
        else:
            await self._write(message.get("body", b""), message.get("more_body", False))

    def _start(self, status: int, headers: list[Header]) -> None:
        names, more = dict(headers), b""
        if b"close" in names.get(b"connection", b""):
            self.keep_alive = False
        elif not self.keep_alive or self._channel.state.stopping:
            self.keep_alive = False
            more = CLOSE
        if self._method == "HEAD" or status in (204, 304):
            self._without_body = True
        elif b"content-length" in names:
            self._left = int(names[b"content-length"])
        elif self._is_1_1:
            self._chunked = True
            more += b"transfer-encoding: chunked\r\n"
        self._head = answer_head(status, headers, more)

    async def _write(self, body: bytes, more_body: bool) -> None:
        if not (self._head or self.begun):
            raise RuntimeError("the app sends a body before the head of its answer")
        if self._without_body:
            body = b""
        elif self._chunked:
            chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            body = chunk if more_body else chunk + b"0\r\n\r\n"
        elif self._left is not None:
            self._left -= len(body)
            if self._left < 0 or (self._left and not more_body):
                raise RuntimeError("the body of the answer is not as long as its head says")
        self.begun = True
        data, self._head = self._head + body, b""
        await self._channel.write(data)
        if not (more_body or self.over):
            self._complete()

    def _complete(self) -> None:
        self.over = True
        self._body.clear()
        self._channel.news.set()
        if not self.keep_alive:
            self._channel.transport.close()
        self._on_answered()
