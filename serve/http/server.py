"""HTTP/1.1 on a listening socket of this process, for any ASGI app."""

import asyncio
import socket
from functools import partial
from typing import Any, Final

from starlette.types import ASGIApp

from serve.http.answer import DescribeError, in_plain_text
from serve.http.connection import Connection
from serve.http.listener import BACKLOG
from serve.http.open_connections import OpenConnections
from serve.http.settings import DRAIN_S, Closed, ConnectionLimits, ConnectionState
from serve.http.tls import RenewedTls, TlsFiles

# A stopping server goes on to answer what arrives for this long. Each answer says that the
# connection ends.
STOP_GRACE_S: Final = 1.0
# A connection that is accepted last has this long to begin its first request.
FIRST_REQUEST_S: Final = 0.1
_POLL_EVERY_S = 0.01
# What is cancelled at the end has this long to answer so.
_CANCEL_S: Final = 0.1
# Connections that are accepted in a row. They come as fast as they are accepted, and others
# have to be answered too.
ACCEPTS_AT_ONCE: Final = 16
# Wait after a failed accept, until a file descriptor or memory may be free again.
_ACCEPT_RETRY_S = 0.05


class HttpServer:
    """Serves an app on the running event loop.

    The caller handles signals and the app's lifespan.
    """

    def __init__(
        self,
        app: ASGIApp,
        limits: ConnectionLimits = ConnectionLimits(),
        state: ConnectionState | None = None,
        tls: TlsFiles | None = None,
        describe: DescribeError = in_plain_text,
    ) -> None:
        """Prepare to serve a started app; nothing listens yet.

        Args:
            app: answers requests.
            limits: of connections.
            state: is kept up to date.
            tls: files for TLS; None for plain HTTP.
            describe: says what is in answers to requests that do not reach the app.

        Raises:
            InvalidCertificate: a file of `tls` cannot be used.
        """
        self._connections = OpenConnections(limits, state or ConnectionState())
        self._tls = RenewedTls(tls) if tls else None
        self._listening: socket.socket | None = None
        self._opening: set[asyncio.Task[Any]] = set()
        self._running: set[asyncio.Task[None]] = set()
        self._connection = partial(Connection, app, self._connections, self._running, describe)
        self._hurried = False
        self._sweeping: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None

    async def start(self, listening: socket.socket) -> None:
        """Accept connections on a non-blocking socket, which is closed in the end."""
        self._listening = listening
        self._sweeping = asyncio.create_task(self._connections.run())
        self._accept_when_ready()

    async def stop(self, grace_s: float = STOP_GRACE_S) -> None:
        """Answer what still arrives for `grace_s`; return when all is answered.

        From the first moment the state says so and answers close their connections. Requests that
        take longer than `DRAIN_S` are cancelled.
        """
        if self._ending is None:
            self._ending = asyncio.create_task(self._end(grace_s))
        await asyncio.shield(self._ending)  # other callers may wait for the same task

    def hurry(self) -> None:
        """Let `stop` wait for no answer any more."""
        self._hurried = True

    async def _end(self, grace_s: float) -> None:
        self._connections.state.stopping = True
        if self._listening:
            await asyncio.sleep(grace_s)
            asyncio.get_running_loop().remove_reader(self._listening)
            self._accept(self._listening, BACKLOG + 1)  # the most that wait
            self._listening.close()
            self._listening = None
        if self._opening:
            await asyncio.wait(self._opening)
        await asyncio.sleep(FIRST_REQUEST_S)
        for connection in self._connections:
            connection.shutdown()
        await self._drain()
        for connection in self._connections:
            connection.abort()
        if self._sweeping:
            self._sweeping.cancel()

    async def _drain(self) -> None:
        """Wait until all is answered; cancel what takes too long."""
        clock = asyncio.get_running_loop().time
        ends_s = clock() + DRAIN_S
        while self._connections.state.num_open or self._running:
            if self._hurried or clock() >= ends_s:
                break
            await asyncio.sleep(_POLL_EVERY_S)
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running, timeout=_CANCEL_S)

    def _accept_when_ready(self) -> None:
        if self._listening:
            loop = asyncio.get_running_loop()
            loop.add_reader(self._listening, self._accept, self._listening)

    def _accept(self, listening: socket.socket, at_most: int = ACCEPTS_AT_ONCE) -> None:
        """Accept connections that wait; after an error, try again later."""
        try:
            for _ in range(at_most):
                accepted, _ = listening.accept()
                if self._connections.admits_one():
                    self._open(accepted)
                else:
                    accepted.close()
        except BlockingIOError:
            return
        except OSError:
            loop = asyncio.get_running_loop()
            loop.remove_reader(listening)
            loop.call_later(_ACCEPT_RETRY_S, self._accept_when_ready)

    def _open(self, accepted: socket.socket) -> None:
        accepted.setblocking(False)
        loop, connection = asyncio.get_running_loop(), self._connection()
        opening = loop.create_task(
            loop.connect_accepted_socket(
                lambda: connection,
                accepted,
                ssl=self._tls.context() if self._tls else None,
                ssl_handshake_timeout=self._connections.limits.head_timeout_s
                if self._tls
                else None,
            )
        )
        self._connections.watch(connection, opening.cancel)
        self._opening.add(opening)
        opening.add_done_callback(partial(self._opened, connection, accepted))

    def _opened(
        self, connection: Connection, accepted: socket.socket, opening: asyncio.Task[Any]
    ) -> None:
        self._opening.discard(opening)
        if not opening.cancelled():
            if opening.exception() is None:
                return
            self._connections.state.closed[Closed.TLS_HANDSHAKE] += 1
        self._connections.forget(connection)
        accepted.close()
