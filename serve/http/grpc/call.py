"""What every call goes through: key, bounds, request id, metrics, log line, errors."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

import grpc
from google.protobuf.message import DecodeError

from serve.access.gate import Client
from serve.access.keys import Scope
from serve.api.access import secret_of
from serve.api.context import AppContext
from serve.api.errors import expected
from serve.api.limits import FREE_BYTES, RETRY_AFTER_S, BodyBudget
from serve.api.record import REQUEST_ID, Recorder, RequestHeaders, RequestRecord
from serve.config import ConnectionLimits
from serve.errors import (
    STOPS,
    BodyTooLarge,
    Cancelled,
    OfframpError,
    Overloaded,
    RequestTimeout,
)
from serve.http.grpc.messages import types_of
from serve.http.grpc.status import MalformedMessage, error_metadata, status_of

_OK: Final = 200
# Calls that need no key, of all connections: probes, whose message must come at once, and streams
# of health and reflection, which may last.
_MAX_PROBES: Final = 256
_PROBE_TIMEOUT_S: Final = 1.0
_MAX_OPEN_STREAMS: Final = 256


@dataclass(frozen=True, slots=True)
class Call:
    """One call, once its message has been read.

    Attributes:
        record: what its metadata say, and what is noted of it.
        rpc: of grpc.aio.
    """

    record: RequestRecord
    rpc: Any


# From a call and its message to the answer.
Answer = Callable[[Call, Any], Awaitable[Any]]


class Calls:
    """Answers calls. Belongs to the event loop.

    Attributes:
        num_running: calls that have no answer yet.
    """

    def __init__(self, context: AppContext, limits: ConnectionLimits) -> None:
        """Prepare for calls to the models of a context."""
        bounds = context.limits
        self.num_running = 0
        self._num_probes = self._num_streams = 0
        self._guard = context.guard
        self._recorder = Recorder(context.metrics, context.access_log)
        self._max_bytes = bounds.max_body_bytes
        self._bodies = BodyBudget(max(bounds.max_buffered_bytes, bounds.max_body_bytes))
        self._limits = limits

    def handler(self, service: str, method: str, answer: Answer, scope: Scope | None = None) -> Any:
        """Return grpc.aio's handler of a method.

        Not as a method of one message: grpc.aio would read that before it calls us. So a call
        without a key, or one too many, is refused unread. Without a scope no key is needed.
        """
        request_type, _ = types_of(service, method)
        route = f"/{service}/{method}"

        async def handle(messages: Any, rpc: Any) -> bytes:
            record = RequestRecord(_metadata(rpc), "GRPC")
            record.route = route
            call, held = Call(record, rpc), 0
            self.num_running += 1
            self._num_probes += scope is None
            try:
                record.client = self._admit(call, scope)
                data = await self.read(rpc, scope is None)
                record.read_s = time.monotonic()
                held = self._hold(data)
                made = await answer(call, parse(request_type, data))
                record.code = _OK
                rpc.set_trailing_metadata(((REQUEST_ID, record.request_id),))
                encoded: bytes = made.SerializeToString()
                return encoded
            except STOPS:  # the client has left, or the deadline has passed
                record.code = Cancelled.status
                raise
            except BaseException as error:
                return await _refuse(rpc, record, error)
            finally:
                self.num_running -= 1
                self._num_probes -= scope is None
                self._bodies.release(held)
                self._recorder.publish(record)

        return grpc.stream_unary_rpc_method_handler(handle)

    def _admit(self, call: Call, scope: Scope | None) -> Client:
        """Return who calls.

        There is no check of the host's name: pages in browsers, from which it protects, cannot
        speak HTTP/2 without TLS, nor send a call of gRPC to another site unasked.
        """
        address = _address(call.rpc.peer())
        if scope is None:
            if self._num_probes > _MAX_PROBES:
                raise Overloaded("the server has as many probes as it may", RETRY_AFTER_S)
            return Client(address)
        client = self._guard.gate.identify(secret_of(call.record.headers), address)
        self._guard.gate.check(client, scope)
        if self.num_running > self._limits.max_connections:
            raise Overloaded("the server has as many calls as it may", RETRY_AFTER_S)
        return client

    @asynccontextmanager
    async def stream(self, rpc: Any) -> AsyncIterator[None]:
        """Count a stream that needs no key; refuse it if there are too many."""
        self._num_streams += 1
        try:
            if self._num_streams > _MAX_OPEN_STREAMS:
                raise Overloaded("the server has as many streams as it may", RETRY_AFTER_S)
            yield
        except OfframpError as error:
            await rpc.abort(*status_of(error), error_metadata(error))
        finally:
            self._num_streams -= 1

    async def read(self, rpc: Any, probe: bool) -> bytes:
        """Return the next message of a call, which of a probe must come at once.

        Raises:
            OfframpError: it comes too slowly, is none or is too large.
        """
        limit_s = self._limits.body_timeout_s
        try:
            async with asyncio.timeout(min(_PROBE_TIMEOUT_S, limit_s) if probe else limit_s):
                data = await rpc.read()
        except TimeoutError:
            raise RequestTimeout("the message came too slowly") from None
        if not isinstance(data, bytes):
            raise MalformedMessage("the call has no message")
        if len(data) > self._max_bytes:
            raise BodyTooLarge(f"the message is larger than {self._max_bytes} bytes; send less")
        return data

    def _hold(self, data: bytes) -> int:
        """Count a message among those that are held, and return what is counted of it."""
        counted = max(0, len(data) - FREE_BYTES)
        if not self._bodies.take(counted):
            raise Overloaded("the server holds as many large messages as it may", RETRY_AFTER_S)
        return counted


def parse(request_type: Any, data: bytes) -> Any:
    """Return a message of this type.

    Raises:
        MalformedMessage: the bytes are none.
    """
    try:
        return request_type.FromString(data)
    except DecodeError:
        name = request_type.DESCRIPTOR.full_name
        raise MalformedMessage(f"the message is no {name} in protobuf's encoding") from None


async def _refuse(rpc: Any, record: RequestRecord, error: BaseException) -> bytes:
    """End a call with an error."""
    refusal = expected(error, record)
    record.code = refusal.status
    trailing = ((REQUEST_ID, record.request_id), *error_metadata(refusal))
    await rpc.abort(*status_of(refusal), trailing)
    return b""  # never reached: `abort` raises


def _metadata(rpc: Any) -> RequestHeaders:
    given = rpc.invocation_metadata() or ()
    return RequestHeaders([(name, value) for name, value in given if isinstance(value, str)])


def _address(peer: str) -> str:
    """Return the address in what gRPC says of a client: `ipv4:127.0.0.1:9`, `ipv6:%5B::1%5D:9`."""
    kind, _, rest = unquote(peer).partition(":")
    if kind not in ("ipv4", "ipv6"):
        return ""
    return rest.rpartition(":")[0].strip("[]")
