"""HTTP on a listening socket of this process."""

import asyncio
import socket
from functools import partial
from typing import Any, Final

from starlette.types import ASGIApp

from serve.config import DRAIN_S, ConnectionLimits
from serve.http.connection import GuardedConnection
from serve.http.guard import ConnectionGuard
from serve.http.listener import BACKLOG
from serve.http.tls import RenewedTls, TlsFiles
from serve.metrics.connections import Closed, ConnectionState

# A stopping server goes on to answer what arrives for this long. Each answer says that the
# connection ends.
STOP_GRACE_S: Final = 1.0
# A connection that is accepted last has this long to begin its first request.
FIRST_REQUEST_S: Final = 0.1
_POLL_EVERY_S = 0.01
# What is cancelled at the end has this long to answer so.
_CANCEL_S: Final = 0.1
# So many connections are accepted in a row. They come as fast as they are accepted, and others
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
    ) -> None:
        """Prepare to serve a started app; nothing listens yet. `state` is kept up to date.

        Raises:
            InvalidCertificate: a file of `tls` cannot be used.
        """
        self._app = app
        self._guard = ConnectionGuard(limits, state or ConnectionState())
        self._tls = RenewedTls(tls) if tls else None
        self._listening: socket.socket | None = None
        self._opening: set[asyncio.Task[Any]] = set()
        self._running: set[asyncio.Task[None]] = set()
        self._hurried = False
        self._sweeping: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None

    async def start(self, listening: socket.socket) -> None:
        """Accept connections on a non-blocking socket, which is closed in the end."""
        self._listening = listening
        self._sweeping = asyncio.create_task(self._guard.run())
        self._accept_when_ready()

    async def stop(self, grace_s: float = STOP_GRACE_S) -> None:
        """Answer what still arrives for `grace_s`; return when all is answered.

        From the first moment `/health/ready` fails and answers close their connections. Requests
        that take longer than `DRAIN_S` are cancelled.
        """
        if self._ending is None:
            self._ending = asyncio.create_task(self._end(grace_s))
        await asyncio.shield(self._ending)  # other callers may wait for the same task

    def hurry(self) -> None:
        """Let `stop` wait for no answer any more."""
        self._hurried = True

    async def _end(self, grace_s: float) -> None:
        self._announce_end()
        if self._listening:
            await asyncio.sleep(grace_s)
            asyncio.get_running_loop().remove_reader(self._listening)
            self._accept(self._listening, BACKLOG + 1)  # the most that wait
            self._listening.close()
            self._listening = None
        if self._opening:
            await asyncio.wait(self._opening)
        await asyncio.sleep(FIRST_REQUEST_S)
        self._guard.shut_down_all()
        await self._drain()
        self._guard.abort_all()
        if self._sweeping:
            self._sweeping.cancel()

    async def _drain(self) -> None:
        """Wait until all is answered; cancel what takes too long."""
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + DRAIN_S
        while self._guard.state.num_open or self._running:
            if self._hurried or loop.time() >= ends_s:
                break
            await asyncio.sleep(_POLL_EVERY_S)
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running, timeout=_CANCEL_S)

    def _announce_end(self) -> None:
        self._guard.state.stopping = True

    def _accept_when_ready(self) -> None:
        if self._listening:
            loop = asyncio.get_running_loop()
            loop.add_reader(self._listening, self._accept, self._listening)

    def _accept(self, listening: socket.socket, at_most: int = ACCEPTS_AT_ONCE) -> None:
        """Accept connections that wait; after an error, try again later."""
        try:
            for _ in range(at_most):
                connection, _ = listening.accept()
                if self._guard.admits_one():
                    self._open(connection)
                else:
                    connection.close()
        except BlockingIOError:
            return
        except OSError:
            loop = asyncio.get_running_loop()
            loop.remove_reader(listening)
            loop.call_later(_ACCEPT_RETRY_S, self._accept_when_ready)

    def _open(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        loop = asyncio.get_running_loop()
        tls = self._tls.context() if self._tls else None
        handshake_s = self._guard.limits.head_timeout_s if tls else None
        protocol = GuardedConnection(self._app, self._guard, self._running)
        opening = loop.create_task(
            loop.connect_accepted_socket(
                lambda: protocol, connection, ssl=tls, ssl_handshake_timeout=handshake_s
            )
        )
        self._guard.watch(protocol, opening.cancel)
        self._opening.add(opening)
        opening.add_done_callback(partial(self._opened, protocol, connection))

    def _opened(
        self, protocol: GuardedConnection, connection: socket.socket, opening: asyncio.Task[Any]
    ) -> None:
        self._opening.discard(opening)
        if not opening.cancelled():
            if opening.exception() is None:
                return
            self._guard.state.closed[Closed.TLS_HANDSHAKE] += 1
        self._guard.forget(protocol)
        connection.close()
