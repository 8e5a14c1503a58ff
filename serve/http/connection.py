"""One HTTP connection, within limits: what a client sends becomes one exchange after the other."""

import asyncio
import math
from enum import Enum, auto
from typing import Any, Final
from urllib.parse import unquote

from starlette.types import ASGIApp

from serve.errors import BodyTooLarge, HeadTooLarge, OfframpError, RequestTimeout
from serve.http.answer import DescribeError
from serve.http.exchange import MAX_HELD_BYTES, Channel, Exchange
from serve.http.framing import Body, body_of
from serve.http.head import Head, check_beginning, read_head
from serve.http.open_connections import OpenConnections
from serve.http.settings import Closed

# A body is held against `min_body_rate` after this time.
BODY_GRACE_S: Final = 5.0
# Clients such as urllib read the answer only after they have sent the whole body. Closing the
# connection earlier resets it, and the answer is lost; so this much of a body is dropped.
MAX_DISCARDED_BYTES: Final = 16 * 1024 * 1024


class _Phase(Enum):
    HEAD = auto()  # the client sends a head, or its first request
    IDLE = auto()  # between two requests
    BODY = auto()  # the client sends a body
    WORK = auto()  # the server has the request
    ANSWER = auto()  # the client takes its answer, or the connection is being closed


_COMES_TOO_SLOWLY: Final = {
    Closed.HEAD_TIMEOUT: "head",
    Closed.BODY_TIMEOUT: "body",
    Closed.BODY_RATE: "body",
}


class Connection(asyncio.Protocol):
    """Reads requests within the limits of `OpenConnections`, each once the last is answered."""

    def __init__(
        self,
        app: ASGIApp,
        connections: OpenConnections,
        running: set[asyncio.Task[None]],
        describe: DescribeError,
    ) -> None:
        # `running` holds the tasks that answer requests, of all connections.
        self._app, self._connections, self._running = app, connections, running
        self._describe = describe
        self._made = self._ignores_rest = self._behind = False
        self._received = bytearray()
        self._num_checked = 0  # bytes of a head that is not complete
        self._exchange: Exchange | None = None  # the last one
        self._incoming: tuple[Exchange, Body] | None = None  # whose body still arrives
        self._num_bytes = self._num_dropped = 0  # of the body
        self._seen: tuple[_Phase, Exchange | None, int] | None = None
        self._since_s = 0.0  # when the phase was first seen

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._channel = Channel(transport, self._connections.state, self._describe)
        self._scheme = "https" if transport.get_extra_info("sslcontext") else "http"
        peer: Any = transport.get_extra_info("peername")
        self._scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "server": transport.get_extra_info("sockname"),
            # ASGI has address and port; of IPv6 there are two numbers more.
            "client": peer[:2] if isinstance(peer, tuple) else None,
            "scheme": self._scheme,
            "root_path": "",
        }
        self._made = True
        self._note()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.forget(self)
        if self._exchange:
            self._exchange.lose()
        self._exchange = self._incoming = None
        self._channel.news.set()
        self._channel.writable.set()

    def pause_writing(self) -> None:
        self._channel.writable.clear()
        self._note()

    def resume_writing(self) -> None:
        self._channel.writable.set()
        self._note()

    def data_received(self, data: bytes) -> None:
        if not self._ignores_rest:
            self._num_bytes += len(data)
            self._received += data
            if not self._behind:
                self._read()

    def shutdown(self) -> None:
        """Close the connection, after the request that it has or is being sent."""
        if self._exchange and not self._exchange.over:
            self._exchange.keep_alive = False
        elif self._incoming or not self._received:
            self._channel.transport.close()

    def abort(self) -> None:
        """Close the connection at once."""
        if self._made:
            self._channel.transport.abort()

    def sweep(self, now_s: float) -> None:
        """Close the connection if its phase has lasted too long."""
        if not self._made:
            return  # the TLS handshake has its own timeout
        phase = self._phase()
        seen = phase, self._exchange, self._channel.num_writes
        if self._seen != seen:
            self._seen, self._since_s = seen, now_s
            return
        if reason := self._overdue(phase, now_s - self._since_s):
            self._time_out(reason)

    def _overdue(self, phase: _Phase, waited_s: float) -> Closed | None:
        """Return why the connection is closed after so long in a phase; None if it is not."""
        limits = self._connections.limits
        limit_s, reason = {
            _Phase.HEAD: (limits.head_timeout_s, Closed.HEAD_TIMEOUT),
            _Phase.IDLE: (limits.idle_timeout_s, Closed.IDLE_TIMEOUT),
            _Phase.BODY: (limits.body_timeout_s, Closed.BODY_TIMEOUT),
            _Phase.WORK: (math.inf, None),
            _Phase.ANSWER: (limits.idle_timeout_s, Closed.WRITE_TIMEOUT),
        }[phase]
        if waited_s >= limit_s:
            return reason
        late = phase is _Phase.BODY and waited_s >= BODY_GRACE_S
        return (
            Closed.BODY_RATE if late and self._num_bytes < limits.min_body_rate * waited_s else None
        )

    def _read(self) -> None:
        try:
            while self._received and not self._channel.transport.is_closing():
                if not self._read_part():
                    break
        except OfframpError as error:
            self._refuse(error, Closed.BAD_REQUEST)
        self._note()

    def _read_part(self) -> bool:
        """Take a head with its body, or more of a body; tell whether that was complete."""
        if self._incoming:
            return self._read_body(*self._incoming)
        if self._busy():
            if len(self._received) > MAX_HELD_BYTES:
                self._channel.pause()
            return False
        checked, self._num_checked = self._num_checked, 0
        end = self._received.find(b"\r\n\r\n", max(0, checked - 3))
        num_bytes = len(self._received) if end < 0 else end + 4
        if num_bytes > (most := self._connections.limits.max_head_bytes):
            raise HeadTooLarge(f"the head is larger than {most} bytes; send less")
        if end < 0:
            check_beginning(self._received, checked)
            self._num_checked = num_bytes
            return False
        head = read_head(bytes(self._received[:num_bytes]), self._scheme)
        del self._received[:num_bytes]
        return self._begin(head)

    def _begin(self, head: Head) -> bool:
        raw_path, _, query = head.target.partition(b"?")
        scope = {
            **self._scope,
            "http_version": head.http_version,
            "method": head.method,
            "path": unquote(raw_path.decode()),
            "raw_path": raw_path,
            "query_string": query,
            "headers": head.headers,
        }
        self._exchange = Exchange(head, scope, self._channel, self._answered)
        self._exchange.start(self._app, self._running)
        self._incoming = self._exchange, body_of(head, self._connections.limits.max_head_bytes)
        self._num_bytes, self._num_dropped = len(self._received), 0
        return self._read_body(*self._incoming)

    def _read_body(self, exchange: Exchange, body: Body) -> bool:
        num_received = len(self._received)
        exchange.feed(body.take(self._received), body.ended)
        if exchange.over:
            self._drop(num_received - len(self._received))
        if body.behind:
            self._read_on_later()
        if body.ended:
            self._incoming = None
            if not exchange.keep_alive:  # nothing may follow (RFC 9112, section 9.6)
                self._ignore_rest()
        return body.ended

    def _drop(self, num_bytes: int) -> None:
        """Count what has come of a body after the answer; the client may read that only then."""
        self._num_dropped += num_bytes
        if self._num_dropped > MAX_DISCARDED_BYTES:
            self._ignore_rest()
            raise BodyTooLarge(
                f"more than {MAX_DISCARDED_BYTES} bytes of the body came after its answer"
            )

    def _ignore_rest(self) -> None:
        self._ignores_rest = True
        self._received.clear()

    def _read_on_later(self) -> None:
        """Let other connections have their turn first."""
        self._behind = True
        self._channel.pause()
        asyncio.get_running_loop().call_soon(self._read_on)

    def _read_on(self) -> None:
        self._behind = False
        if not self._channel.transport.is_closing():
            self._channel.resume()
            self._read()

    def _answered(self) -> None:
        if not self._channel.transport.is_closing():
            self._channel.resume()
            if self._received and not self._behind:
                self._read()
            else:
                self._note()

    def _busy(self) -> bool:
        return self._exchange is not None and not self._exchange.over

    def _waits(self) -> bool:
        """Tell whether a head is to come."""
        return self._incoming is None and not self._busy()

    def _phase(self) -> _Phase:
        transport = self._channel.transport
        if transport.is_closing() or transport.get_write_buffer_size():
            return _Phase.ANSWER
        if not self._channel.writable.is_set():  # with TLS, there is a buffer behind the buffer
            return _Phase.ANSWER
        if self._waits():
            return _Phase.HEAD if self._exchange is None or self._received else _Phase.IDLE
        return _Phase.BODY if self._incoming and not self._channel.paused else _Phase.WORK

    def _note(self) -> None:
        if self._waits() or not self._channel.writable.is_set():
            self._connections.waits(self)
        else:
            self._connections.works(self)

    def _time_out(self, reason: Closed) -> None:
        part = _COMES_TOO_SLOWLY.get(reason)
        if part == "body" or (part == "head" and self._received):
            self._refuse(RequestTimeout(f"the {part} of the request came too slowly"), reason)
        else:
            self._connections.state.closed[reason] += 1
            self.abort()

    def _refuse(self, error: OfframpError, reason: Closed) -> None:
        """Answer with an error where no answer has begun, and close the connection."""
        self._connections.state.closed[reason] += 1
        if self._exchange and not self._exchange.over:
            self._exchange.fail(error)
            return
        if self._waits():
            self._channel.write_error(error)
        self._channel.transport.close()
