"""The servers of one process: HTTP, and gRPC beside it where a port for it is configured."""

import asyncio
import os
import socket
from typing import TYPE_CHECKING

from starlette.types import ASGIApp

from serve.api.context import AppContext
from serve.api.route import described
from serve.config import ServerConfig
from serve.errors import InvalidRequest
from serve.http.listener import address_of
from serve.http.server import STOP_GRACE_S, HttpServer
from serve.http.settings import ConnectionLimits
from serve.http.tls import TlsFiles

if TYPE_CHECKING:
    from serve.http.grpc.server import GrpcServer


class Servers:
    """Starts and stops together what answers for one app."""

    def __init__(self, app: ASGIApp, context: AppContext, config: ServerConfig) -> None:
        """Prepare to serve; nothing listens yet.

        Raises:
            InvalidCertificate: a file for TLS cannot be used.
        """
        tls, limits = tls_files(config), config.connections
        self._http = HttpServer(app, limits, context.connections, tls, described)
        self._grpc_port = config.grpc_port
        self._grpc = None if config.grpc_port is None else _grpc_server(context, limits, tls)

    async def start(self, listening: socket.socket) -> None:
        """Accept connections, for gRPC on the same host."""
        host, _ = address_of(listening)
        await self._http.start(listening)
        if self._grpc and self._grpc_port is not None:
            await self._grpc.start(host, self._grpc_port)

    async def stop(self, grace_s: float = STOP_GRACE_S) -> None:
        """Answer what still arrives for `grace_s`; return when all is answered."""
        async with asyncio.TaskGroup() as stopping:
            stopping.create_task(self._http.stop(grace_s))
            if self._grpc:
                stopping.create_task(self._grpc.stop(grace_s))

    def hurry(self) -> None:
        """Let `stop` wait for no answer any more."""
        self._http.hurry()
        if self._grpc:
            self._grpc.hurry()


def tls_files(config: ServerConfig) -> TlsFiles | None:
    """Return the files for TLS; None for plain HTTP.

    Raises:
        InvalidRequest: one of certificate and key is missing.
    """
    if not (config.tls_cert or config.tls_key or config.tls_client_ca):
        return None
    if not (config.tls_cert and config.tls_key):
        raise InvalidRequest("TLS needs a certificate and its key: --tls-cert and --tls-key")
    return TlsFiles(config.tls_cert, config.tls_key, config.tls_client_ca)


def _grpc_server(
    context: AppContext, limits: ConnectionLimits, tls: TlsFiles | None
) -> "GrpcServer":
    # Otherwise each handshake and each compressed message that it refuses is a line on stderr.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from serve.http.grpc.server import GrpcServer  # a server without gRPC does not load it

    return GrpcServer(context, limits, tls)
