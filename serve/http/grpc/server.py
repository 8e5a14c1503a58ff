"""The gRPC server of one process: grpc.aio on the running event loop."""

import asyncio
import logging
from typing import Any, Final

import grpc
from grpc._cython import cygrpc

from serve.api.context import AppContext
from serve.http.grpc.arrivals import WINDOW_BYTES
from serve.http.grpc.call import Calls
from serve.http.grpc.credentials import server_credentials
from serve.http.grpc.health import HealthService
from serve.http.grpc.messages import HEALTH, INFERENCE, REFLECTION
from serve.http.grpc.reflection import reflection_handlers
from serve.http.grpc.service import methods_of
from serve.http.listener import PortTaken, in_url
from serve.http.open_connections import connections_that_fit
from serve.http.server import STOP_GRACE_S
from serve.http.settings import DRAIN_S, ConnectionLimits
from serve.http.tls import TlsFiles

# Calls of one connection at once; clients keep further ones back. Far more than clients have: near
# the bound the library ends calls that a client may begin, as it counts ended ones for a while.
_MAX_STREAMS: Final = 4096
# After this time a connection is ended as soon as its calls are, and clients open another one. A
# client that takes no answers keeps their calls open, and the library ends no single call.
_MAX_AGE_S: Final = 600
# An answer may take so long to be sent once the server stops.
_SEND_S: Final = 1.0
# Clients may look so often whether the connection still stands.
_MIN_PING_INTERVAL_S: Final = 10
_POLL_EVERY_S: Final = 0.01


class _ClientsLeft(logging.Filter):
    """Drops what the library logs of clients that have left before the end of their calls."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether the line is about something else."""
        error = record.exc_info and record.exc_info[1]
        return not isinstance(error, grpc.aio.InternalError)


_CLIENTS_LEFT: Final = _ClientsLeft()


class GrpcServer:
    """Serves the models of a context; the caller handles signals and starts the engines."""

    def __init__(
        self, context: AppContext, limits: ConnectionLimits, tls: TlsFiles | None = None
    ) -> None:
        """Prepare to serve, without TLS files in plain HTTP/2; nothing listens yet.

        Limits that gRPC has no like of are left out.

        Raises:
            InvalidCertificate: a file of `tls` cannot be used.
        """
        self._context = context
        self._limits = limits
        self._credentials = server_credentials(tls) if tls else None
        self._calls = Calls(context, limits)
        self._server: Any = None
        self._ending: asyncio.Task[None] | None = None

    async def start(self, host: str, port: int) -> None:
        """Listen, also beside other processes on the same port.

        Raises:
            PortTaken: the address cannot be had.
        """
        server = grpc.aio.server(
            options=_options(self._limits, self._context.limits.max_body_bytes)
        )
        self._add_services(server)
        logging.getLogger(cygrpc.__name__).addFilter(_CLIENTS_LEFT)
        address = f"{in_url(host)}:{port}"
        try:
            if self._credentials:
                server.add_secure_port(address, self._credentials)
            else:
                server.add_insecure_port(address)
        except RuntimeError:
            raise PortTaken(f"cannot listen on {address} for gRPC; choose another port") from None
        await server.start()
        self._server = server

    async def stop(self, grace_s: float = STOP_GRACE_S) -> None:
        """Answer what still arrives for `grace_s`; return when all is answered.

        From the first moment the server says that it is not ready. Calls that take longer than
        `DRAIN_S` are cancelled.
        """
        if self._ending is None:
            self._ending = asyncio.create_task(self._end(grace_s))
        await asyncio.shield(self._ending)

    def hurry(self) -> None:
        """Let `stop` wait for no answer any more."""
        if self._server:
            self._hurrying = asyncio.create_task(self._server.stop(None))

    async def _end(self, grace_s: float) -> None:
        self._context.connections.stopping = True
        if self._server is None:
            return
        await asyncio.sleep(grace_s)
        ended = asyncio.create_task(self._server.stop(DRAIN_S))
        while self._calls.num_running and not ended.done():
            await asyncio.sleep(_POLL_EVERY_S)
        # Streams of health and reflection are left, which need not end by themselves.
        await self._server.stop(_SEND_S)
        await ended

    def _add_services(self, server: Any) -> None:
        health, handler = HealthService(self._context), self._calls.handler
        inference = {
            name: handler(INFERENCE, name, answer, scope)
            for name, (answer, scope) in methods_of(self._context, health).items()
        }
        checks = {
            "Check": handler(HEALTH, "Check", health.check),
            "Watch": health.watch_handler(self._calls),
        }
        reflection = reflection_handlers(self._calls)
        services = ((INFERENCE, inference), (HEALTH, checks), (REFLECTION, reflection))
        for service, handlers in services:
            generic = grpc.method_handlers_generic_handler(service, handlers)
            server.add_generic_rpc_handlers((generic,))


def _options(limits: ConnectionLimits, max_body_bytes: int) -> list[tuple[str, int]]:
    # HTTP's connections need as many descriptors.
    num_connections = connections_that_fit(2 * limits.max_connections) // 2
    idle_ms, head_ms = int(limits.idle_timeout_s * 1000), int(limits.head_timeout_s * 1000)
    return [
        ("grpc.so_reuseport", 1),
        ("grpc.max_allowed_incoming_connections", num_connections),
        ("grpc.max_concurrent_streams", _MAX_STREAMS),
        # Above the first, calls that have not reached us are cancelled at random, without a word.
        ("grpc.server.max_pending_requests", _MAX_STREAMS),
        ("grpc.server.max_pending_requests_hard_limit", 2 * _MAX_STREAMS),
        ("grpc.max_receive_message_length", max_body_bytes),
        ("grpc.max_send_message_length", -1),
        # Without a probe of the line, which would widen it to several MB.
        ("grpc.http2.lookahead_bytes", WINDOW_BYTES),
        ("grpc.http2.bdp_probe", 0),
        ("grpc.max_metadata_size", limits.max_head_bytes),
        ("grpc.absolute_max_metadata_size", limits.max_head_bytes),
        ("grpc.server_handshake_timeout_ms", head_ms),
        ("grpc.max_connection_idle_ms", idle_ms),
        ("grpc.max_connection_age_ms", _MAX_AGE_S * 1000),
        ("grpc.max_connection_age_grace_ms", idle_ms),
        # A connection whose other end is gone is found so.
        ("grpc.keepalive_time_ms", idle_ms),
        ("grpc.keepalive_timeout_ms", head_ms),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", _MIN_PING_INTERVAL_S * 1000),
        # Identity alone: a small message could become a large one.
        ("grpc.compression_enabled_algorithms_bitset", 1),
    ]
