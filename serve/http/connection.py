"""One HTTP connection: uvicorn's protocol over h11, within limits."""

import asyncio
import sys
from contextlib import suppress
from enum import Enum, auto
from http import HTTPStatus
from typing import Any, Final
from uuid import uuid4

import h11
from uvicorn.protocols.http.flow_control import CLOSE_HEADER
from uvicorn.protocols.http.h11_impl import H11Protocol

from serve.api.errors import error_response
from serve.errors import BadRequest, HeadTooLarge, OfframpError, RequestTimeout
from serve.http.guard import ConnectionGuard
from serve.metrics.connections import Closed

# A body is held against `min_body_rate` after this time.
BODY_GRACE_S: Final = 5.0


class _Phase(Enum):
    HEAD = auto()  # the client sends a head, or its first request
    IDLE = auto()  # between two requests
    BODY = auto()  # the client sends a body
    WORK = auto()  # the server has the request
    ANSWER = auto()  # the client takes its answer, or the connection is being closed


class _StrictConnection(h11.Connection):
    """Refuses heads that h11 would take.

    * A request with two lengths, of which another server may heed the other. RFC 9112, section 6.3,
      lets a server choose; h11 would go by the chunks and keep the connection.
    * A head that is too large and comes at once. h11 bounds only what it has to wait for.
    """

    def __init__(self, max_head_bytes: int) -> None:
        super().__init__(h11.SERVER, max_head_bytes)
        self._max_head_bytes = max_head_bytes

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request):
            names = {name for name, _ in event.headers}
            if {b"content-length", b"transfer-encoding"} <= names:
                raise h11.RemoteProtocolError("both Content-Length and Transfer-Encoding")
            if _size(event) > self._max_head_bytes:
                raise h11.RemoteProtocolError("too large", HeadTooLarge.status)
        return event


def _size(head: h11.Request) -> int:
    """Return the bytes of a head without optional whitespace."""
    first = len(head.method) + len(head.target) + len("  HTTP/1.1\r\n")
    return first + sum(len(name) + len(value) + 3 for name, value in head.headers) + 2


# uvicorn's keep-alive timer ends a connection that was idle from its answer on, but runs no more
# once something has come, such as the rest of a body that the app did not want.
_UNTIL_IDLE_TIMEOUT: Final = {
    _Phase.IDLE: Closed.IDLE_TIMEOUT,
    _Phase.ANSWER: Closed.WRITE_TIMEOUT,
}


class GuardedConnection(H11Protocol):
    """Keeps uvicorn's connection within the limits of a `ConnectionGuard`.

    What h11 refuses gets an answer in our JSON.
    """

    def __init__(self, guard: ConnectionGuard, **options: Any) -> None:
        """Make a connection, as uvicorn does with these options."""
        super().__init__(**options)
        self.conn = _StrictConnection(guard.limits.max_head_bytes)
        self._guard = guard
        self._made = False
        self._num_bytes = 0
        self._seen: tuple[_Phase, object] | None = None
        self._since_s = 0.0  # when the phase was first seen
        self._bytes_then = self._bytes_swept = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._made = True
        self._note()

    def connection_lost(self, exc: Exception | None) -> None:
        self._guard.forget(self)
        super().connection_lost(exc)
        self._unset_keepalive_if_required()  # uvicorn leaves it after an error

    def data_received(self, data: bytes) -> None:
        if self.conn.their_state is h11.MUST_CLOSE:
            return  # nothing may follow the last request (RFC 9112, section 9.6)
        self._num_bytes += len(data)
        super().data_received(data)
        self._note()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._note()

    def timeout_keep_alive_handler(self) -> None:
        self._close(Closed.IDLE_TIMEOUT)

    def send_400_response(self, msg: str) -> None:
        error: OfframpError = BadRequest(
            "the request is not well-formed HTTP/1.1: check request line, headers and framing"
        )
        # uvicorn calls this where it has caught h11's error.
        if getattr(sys.exception(), "error_status_hint", None) == HeadTooLarge.status:
            max_bytes = self._guard.limits.max_head_bytes
            error = HeadTooLarge(f"the head is larger than {max_bytes} bytes; send less")
        self._refuse(error, Closed.BAD_REQUEST)

    def shutdown(self) -> None:
        """Close the connection, after the request that it has or is being sent."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.keep_alive = False
        elif not self._head_begun():
            self.transport.close()

    def close_after_answer(self, headers: list[tuple[bytes, bytes]]) -> None:
        """Give these headers, which say so, to the answer that is not begun, if there is one."""
        if self.cycle is not None:
            self.cycle.default_headers = headers

    def abort(self) -> None:
        """Close the connection at once."""
        if self._made:
            self.transport.abort()

    def sweep(self, now_s: float) -> None:
        """Close the connection if its phase has lasted too long."""
        if not self._made:
            return  # the TLS handshake has its own timeout
        phase = self._phase()
        before, self._bytes_swept = self._bytes_swept, self._num_bytes
        if self._seen != (phase, self.cycle):
            # What came since the last look belongs to this phase.
            self._seen, self._since_s, self._bytes_then = (phase, self.cycle), now_s, before
            return
        waited_s, limits = now_s - self._since_s, self._guard.limits
        if phase is _Phase.HEAD and waited_s >= limits.head_timeout_s:
            self._time_out("head", Closed.HEAD_TIMEOUT)
        elif phase is _Phase.BODY and waited_s >= limits.body_timeout_s:
            self._time_out("body", Closed.BODY_TIMEOUT)
        elif phase is _Phase.BODY and waited_s >= BODY_GRACE_S:
            if self._num_bytes - self._bytes_then < limits.min_body_rate * waited_s:
                self._time_out("body", Closed.BODY_RATE)
        elif phase in _UNTIL_IDLE_TIMEOUT and waited_s >= limits.idle_timeout_s:
            self._close(_UNTIL_IDLE_TIMEOUT[phase])

    def _phase(self) -> _Phase:
        if self.transport.is_closing() or self.transport.get_write_buffer_size():
            return _Phase.ANSWER
        state = self.conn.their_state
        if state is h11.IDLE:
            return _Phase.HEAD if self.cycle is None or self._head_begun() else _Phase.IDLE
        if state is h11.SEND_BODY and not self.flow.read_paused:
            return _Phase.BODY
        return _Phase.WORK

    def _head_begun(self) -> bool:
        return self.conn.their_state is h11.IDLE and bool(self.conn.trailing_data[0])

    def _note(self) -> None:
        if self.conn.their_state is h11.IDLE:
            self._guard.waits(self)
        else:
            self._guard.works(self)

    def _time_out(self, part: str, reason: Closed) -> None:
        if reason is Closed.HEAD_TIMEOUT and not self._head_begun():
            self._close(reason)
        else:
            self._refuse(RequestTimeout(f"the {part} of the request came too slowly"), reason)

    def _close(self, reason: Closed) -> None:
        self._guard.state.closed[reason] += 1
        self.abort()

    def _refuse(self, error: OfframpError, reason: Closed) -> None:
        """Answer with an error where no answer has begun, and close the connection."""
        self._guard.state.closed[reason] += 1
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True  # the app's own answer is dropped
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            with suppress(h11.LocalProtocolError):  # the answer to HEAD has no body
                self._write(error)
        self.transport.close()

    def _write(self, error: OfframpError) -> None:
        response = error_response(error)
        request_id = (b"x-request-id", uuid4().hex.encode())
        start = h11.Response(
            status_code=response.status_code,
            headers=[*response.raw_headers, request_id, CLOSE_HEADER],
            reason=HTTPStatus(response.status_code).phrase,
        )
        for event in (start, h11.Data(data=bytes(response.body)), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event))
