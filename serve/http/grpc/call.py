"""Every call has a key, bounds, a request id, metrics, a log line and errors of one form."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from urllib.parse import unquote

import grpc
from google.protobuf.json_format import ParseDict

from serve.access.gate import Client
from serve.access.held_bytes import RETRY_AFTER_S, HeldBytes
from serve.access.keys import Scope
from serve.access.proxies import without_mapping
from serve.api.body import give_way
from serve.api.context import AppContext
from serve.api.recorder import Recorder
from serve.api.request import ARM, BUNDLE, REPLICA, REQUEST_ID, Headers, Request, expected
from serve.errors import STOPS, Cancelled, OfframpError, Overloaded
from serve.http.grpc.arrivals import WINDOW_BYTES, Reader
from serve.http.grpc.messages import parse, types_of
from serve.http.grpc.open_calls import OpenCalls
from serve.http.grpc.status import error_metadata, status_of
from serve.http.settings import ConnectionLimits

_OK: Final = 200
# Calls that need no key, of all connections: probes, and streams of health and reflection, which
# may last.
_MAX_PROBES: Final = 512
_MAX_OPEN_STREAMS: Final = 256


@dataclass(frozen=True, slots=True)
class Call:
    """One call, once its message has been read.

    Attributes:
        request: what the call's metadata say, and what is noted of the call.
        rpc: the call in grpc.aio.
    """

    request: Request
    rpc: Any


Metadata = list[tuple[str, str]]
# From a call and its message to the answer: a message, or its fields.
Answer = Callable[[Call, Any], Awaitable[Any]]


class Calls:
    """Answers calls. Belongs to the event loop.

    Attributes:
        num_running: calls that have no answer yet.
        reader: reads their messages.
    """

    def __init__(self, context: AppContext, limits: ConnectionLimits) -> None:
        """Prepare for calls to the models of a context."""
        bounds = context.limits
        self.num_running = 0
        self._open, self._probes = OpenCalls(limits.max_connections), OpenCalls(_MAX_PROBES)
        self._streams = OpenCalls(_MAX_OPEN_STREAMS)
        # Counted apart from HTTP's: answers over gRPC cannot be given up to make room.
        self._answers = HeldBytes(bounds.max_buffered_bytes, "answers")
        context.metrics.answers.append(self._answers)
        self._access, self._proxies = context.access, context.proxies
        self._recorder = Recorder(context)
        self.reader = Reader(bounds, limits)
        self._bodies = context.bodies
        replica = context.replicas.own_id
        self._replica: Metadata = [(REPLICA, replica)] if replica else []

    def handler(self, service: str, method: str, answer: Answer, scope: Scope | None = None) -> Any:
        """Return grpc.aio's handler of a method.

        Not as a method of one message: grpc.aio would read that before it calls us. So a call
        without a key, or one too many, is refused unread. Without a scope no key is needed.
        """
        request_type, answer_type = types_of(service, method)
        route = f"/{service}/{method}"

        async def handle(messages: Any, rpc: Any) -> bytes:
            request = Request(_metadata(rpc), "GRPC")
            self._recorder.begin(request, route, scope)
            taken = ExitStack()  # when the client has taken the answer, or has left
            rpc.add_done_callback(lambda _: taken.close())
            self.num_running += 1
            try:
                with ExitStack() as answered:
                    data = await self._admit(rpc, request, scope, (taken, answered))
                    with self._bodies.holding(request.client.identity, len(data)):
                        made = await answer(
                            Call(request, rpc), await _message(request_type, data, request)
                        )
                        encoded = _encoded(made, answer_type)
                    held = self._answers.hold(request.client.identity, len(encoded))
                    taken.callback(self._answers.release, held)
                    if held.num_bytes:
                        taken.callback(answered.pop_all().close)
                request.code = _OK
                rpc.set_trailing_metadata(self._trailing(request))
                return encoded
            # The client has left, or the deadline has passed.
            except (*STOPS, grpc.aio.InternalError):
                request.code = Cancelled.status
                raise
            except BaseException as error:
                return await _refuse(rpc, request, error, self._trailing(request))
            finally:
                self.num_running -= 1
                self._recorder.publish(request)

        return grpc.stream_unary_rpc_method_handler(handle)

    def _trailing(self, request: Request) -> Metadata:
        """Return the metadata behind every answer."""
        found = [(REQUEST_ID, request.request_id), *self._replica]
        if request.arm is not None:
            found.append((ARM, request.arm.name))
        return [*found, (BUNDLE, request.bundle)] if request.bundle else found

    async def _admit(
        self, rpc: Any, request: Request, scope: Scope | None, counted: tuple[ExitStack, ...]
    ) -> bytes:
        """Note who calls, and return the message.

        There is no check of the host's name: pages in browsers, from which it protects, cannot
        speak HTTP/2 without TLS, nor send a call of gRPC to another site unasked.

        Args:
            rpc: the call in grpc.aio.
            request: the same call as our own record.
            scope: the scope that a key needs; None for a probe.
            counted: the first stack is closed once the client has its answer, the second one once
                the answer is made.
        """
        taken, answered = counted
        calls, address = self._probes if scope is None else self._open, self._address(rpc)
        client = request.client = Client.at(address)
        if scope is not None:
            client = request.client = self._access.identify(request.headers, address)
            self._access.gate.check(client, scope)
        calls.enter(client.identity)
        taken.callback(calls.leave, client.identity)
        answered.enter_context(client.in_flight())
        self._answers.check(client.identity)
        client.check_body(0)
        waiting = partial(calls.waiting, client.identity)
        request.num_bytes = WINDOW_BYTES  # what has come of a message that is given up is not known
        return await self.reader.read(rpc, client.identity, scope is None, waiting)

    def _address(self, rpc: Any) -> str:
        """Return the client's address, as far as trusted proxies tell it."""
        peer = without_mapping(_address(rpc.peer()))
        given = rpc.invocation_metadata() or () if self._proxies.trust(peer) else ()
        hops = [value for name, value in given if name == "x-forwarded-for"]
        return self._proxies.client(peer, ",".join(map(str, hops))) if hops else peer

    @asynccontextmanager
    async def stream(self, rpc: Any) -> AsyncIterator[str]:
        """Count a stream that needs no key; end it if too many others come.

        The client's identity is given to the block.
        """
        client = Client.at(self._address(rpc)).identity
        try:
            self._streams.enter(client)
            try:
                async with asyncio.timeout(None) as end:
                    with self._streams.waiting(client, end):
                        yield client
            except TimeoutError:
                raise Overloaded("the stream has made room for another", RETRY_AFTER_S) from None
            finally:
                self._streams.leave(client)
        except OfframpError as error:
            await rpc.abort(*status_of(error), error_metadata(error))


async def _message(request_type: Any, data: bytes, request: Request) -> Any:
    """Return the message of a call, as `parse`, once it has been counted.

    Raises:
        RateLimited: the client has taken all that it may.
    """
    request.read_s, request.num_bytes = time.monotonic(), len(data)
    request.client.take_body(len(data))
    message = parse(request_type, data)
    await give_way(len(data))
    return message


def _encoded(made: Any, answer_type: Any) -> bytes:
    """Return an answer in protobuf's encoding; of its fields, those that we declare."""
    if isinstance(made, dict):
        made = ParseDict(made, answer_type(), ignore_unknown_fields=True)
    encoded: bytes = made.SerializeToString()
    return encoded


async def _refuse(rpc: Any, request: Request, error: BaseException, trailing: Metadata) -> bytes:
    """End a call with an error."""
    refusal = expected(error, request)
    error.__traceback__ = None  # its frames hold the message, which may take a hundred MB
    request.code = refusal.status
    await rpc.abort(*status_of(refusal), (*trailing, *error_metadata(refusal)))
    return b""  # never reached: `abort` raises


def _metadata(rpc: Any) -> Headers:
    given = rpc.invocation_metadata() or ()
    return Headers([(name, value) for name, value in given if isinstance(value, str)])


def _address(peer: str) -> str:
    """Return the address in what gRPC says of a client: `ipv4:127.0.0.1:9`, `ipv6:%5B::1%5D:9`."""
    kind, _, rest = unquote(peer).partition(":")
    if kind not in ("ipv4", "ipv6"):
        return ""
    return rest.rpartition(":")[0].strip("[]")
