"""HTTP by uvicorn with h11, on a listening socket of this process."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from serve.config import DRAIN_S
from serve.http.listener import listen_shared

# As Ray Serve's proxy. Clients and load balancers keep an idle connection for a minute. A server
# that closes it first may lose a request that is just being sent.
KEEP_ALIVE_S: Final = 90
# Largest request line with headers.
MAX_HEAD_BYTES: Final = 64 * 1024
# A connection that is accepted during the stop has this long to begin its first request.
FIRST_REQUEST_S: Final = 0.1
_POLL_EVERY_S = 0.01
# Wait after a failed accept, until a file descriptor or memory may be free again.
_ACCEPT_RETRY_S = 0.05


class _OneFraming(h11.Connection):
    """Refuses a request with two lengths, of which another server may heed the other.

    RFC 9112, section 6.3, lets a server choose; h11 would go by the chunks and keep the connection.
    """

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request):
            names = {name for name, _ in event.headers}
            if {b"content-length", b"transfer-encoding"} <= names:
                raise h11.RemoteProtocolError("both Content-Length and Transfer-Encoding")
        return event


class _Connection(H11Protocol):
    def __init__(self, config: uvicorn.Config, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, *args, **kwargs)
        self.conn = _OneFraming(h11.SERVER, config.h11_max_incomplete_event_size or MAX_HEAD_BYTES)

    def send_400_response(self, msg: str) -> None:
        if self.cycle is not None:
            self.cycle.disconnected = True  # the app's own answer is dropped
        with suppress(h11.LocalProtocolError):  # an answer has begun, or that to HEAD has a body
            super().send_400_response(msg)
        self.transport.close()


def uvicorn_config(app: ASGIApp, **settings: Any) -> uvicorn.Config:
    """Return the settings of uvicorn that every server here uses.

    h11 ignores a proposal to change the protocol (RFC 9110, section 7.8), so requests of Java's
    HttpClient and `curl --http2` keep their bodies; httptools loses them. uvicorn warns of each
    such request, and of each that is no HTTP, hence the log level.
    """
    return uvicorn.Config(
        app,
        log_level="error",
        access_log=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=DRAIN_S,
        http=_Connection,
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        ws="none",
        **settings,
    )


class HttpServer:
    """Serves an app on a port that several processes share, on the running event loop.

    The caller handles signals and the app's lifespan.
    """

    def __init__(self, app: ASGIApp, host: str, port: int) -> None:
        """Prepare to serve; nothing listens yet.

        Args:
            app: a started ASGI app.
            host: numeric address.
            port: as `serve.http.listener.take_shared_port` holds it.
        """
        # uvicorn's own logging set-up would close the handlers of others.
        self._config = uvicorn_config(app, lifespan="off", log_config=None)
        self._server = _Server(self._config)
        self._address = host, port
        self._listening: socket.socket | None = None
        self._opening: set[asyncio.Task[Any]] = set()
        self._serving: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Listen.

        Raises:
            PortTaken: the address cannot be had.
        """
        self._listening = listen_shared(*self._address)
        self._serving = asyncio.create_task(self._server.serve([]))
        while not (self._server.started or self._serving.done()):
            await asyncio.sleep(_POLL_EVERY_S)
        if self._serving.done():
            await self._serving  # raises the reason
        self._accept_when_ready()

    async def stop(self) -> None:
        """Accept what waits in the accept queue, then no more; return when all is answered.

        Requests that take longer than `DRAIN_S` are cancelled.
        """
        if self._listening:
            asyncio.get_running_loop().remove_reader(self._listening)
            self._accept_all(self._listening)
            self._listening.close()
            self._listening = None
        if self._ending is None:
            self._ending = asyncio.create_task(self._end())
        await asyncio.shield(self._ending)  # other callers may wait for the same task

    async def _end(self) -> None:
        if self._opening:
            await asyncio.wait(self._opening)
        await asyncio.sleep(FIRST_REQUEST_S)
        self._server.should_exit = True
        if self._serving:
            await self._serving

    def _accept_when_ready(self) -> None:
        if self._listening:
            loop = asyncio.get_running_loop()
            loop.add_reader(self._listening, self._accept_all, self._listening)

    def _accept_all(self, listening: socket.socket) -> None:
        """Accept every connection that waits; after an error, try again later."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                connection, _ = listening.accept()
                connection.setblocking(False)
                opening = loop.create_task(loop.connect_accepted_socket(self._protocol, connection))
                self._opening.add(opening)
                opening.add_done_callback(self._opening.discard)
        except BlockingIOError:
            return
        except OSError:
            loop.remove_reader(listening)
            loop.call_later(_ACCEPT_RETRY_S, self._accept_when_ready)

    def _protocol(self) -> asyncio.Protocol:
        """Return what uvicorn makes for each connection that it accepts itself."""
        make: Any = self._config.http_protocol_class
        protocol: asyncio.Protocol = make(
            config=self._config, server_state=self._server.server_state, app_state={}
        )
        return protocol


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
