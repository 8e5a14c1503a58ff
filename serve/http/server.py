"""HTTP by uvicorn, with the settings that we give it."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp

from serve.api.app import DRAIN_S
from serve.http.protocol import HttpProtocol

# As Ray Serve's proxy. Clients and load balancers keep an idle connection for a minute; where the
# server closes it first, a request may just be on its way on it, and is lost.
KEEP_ALIVE_S: Final = 90
_POLL_EVERY_S = 0.01
_AT_ONCE = 32
# Until who had no room for a connection says so, and may be dealt another.
_NO_ROOM_S = 1.0


def uvicorn_config(app: ASGIApp, **settings: Any) -> uvicorn.Config:
    """Return our settings of uvicorn.

    Args:
        app: what answers.
        settings: more of them.
    """
    return uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=DRAIN_S,
        http=HttpProtocol,
        ws="none",  # we have none, and who asks for one would leave uvicorn's protocol, and ours
        **settings,
    )


class HttpServer:
    """Serves an app on connections that a `ConnectionDealer` deals, on the running event loop.

    Signals and the app's lifespan are minded by somebody else.
    """

    def __init__(self, app: ASGIApp, place: str) -> None:
        """Prepare to serve.

        Args:
            app: what answers, started.
            place: the dealer's.
        """
        # uvicorn's own setting up of logging would close the handlers that others have.
        self._config = uvicorn_config(app, lifespan="off", log_config=None)
        self._server = _Server(self._config)
        self._place = place
        self._dealt = socket.socket(socket.AF_UNIX)
        self._serving: asyncio.Task[None] | None = None
        self._greeting: set[asyncio.Task[Any]] = set()
        self._unsaid = 0  # closed connections of which the dealer has not heard

    async def start(self) -> None:
        """Take part, from now on.

        Raises:
            OSError: no dealer is there.
        """
        self._dealt.connect(self._place)
        self._dealt.setblocking(False)
        self._serving = asyncio.create_task(self._server.serve([]))
        while not (self._server.started or self._serving.done()):
            await asyncio.sleep(_POLL_EVERY_S)
        if self._serving.done():
            await self._serving  # which says why
        asyncio.get_running_loop().add_reader(self._dealt, self._take_some)

    async def stop(self) -> None:
        """Take no more connections, and return when what was taken in is answered.

        What takes longer than `DRAIN_S` is cancelled.
        """
        if not self._serving:
            self._dealt.close()
            return
        if self._dealt.fileno() >= 0:
            self._dealt.shutdown(socket.SHUT_RD)
            while self._take():
                pass
        if self._greeting:
            await asyncio.wait(self._greeting)
        self._server.should_exit = True
        await asyncio.shield(self._serving)  # others may wait for the same

    def _take_some(self) -> None:
        """Take what has been dealt, but no more than leaves time for the requests."""
        for _ in range(_AT_ONCE):
            if not self._take():
                return

    def _take(self) -> bool:
        """Take the connection that has been dealt, if one has; tell whether it was so."""
        try:
            data, dealt, _, _ = socket.recv_fds(self._dealt, 1, 1)
        except BlockingIOError:
            return False
        except OSError:  # the dealer has ended before it has heard all that we said
            data, dealt = b"", []
        if not data:  # the dealer has ended, or we stop
            asyncio.get_running_loop().remove_reader(self._dealt)
            self._dealt.close()
            return False
        if dealt:
            self._greet(socket.socket(fileno=dealt[0]))
        else:  # this process has no file descriptor left for it
            asyncio.get_running_loop().call_later(_NO_ROOM_S, self._say_closed)
        return True

    def _greet(self, connection: socket.socket) -> None:
        connection.set_inheritable(False)
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        loop = asyncio.get_running_loop()
        greeting = loop.create_task(loop.connect_accepted_socket(self._protocol, connection))
        self._greeting.add(greeting)
        greeting.add_done_callback(self._greeting.discard)

    def _protocol(self) -> asyncio.Protocol:
        """Return what uvicorn makes for each connection that it takes itself; it says its end."""
        make: Any = self._config.http_protocol_class
        protocol: Any = make(
            config=self._config, server_state=self._server.server_state, app_state={}
        )

        def connection_lost(error: Exception | None) -> None:
            del protocol.connection_lost  # so that they do not keep each other
            self._say_closed()
            protocol.connection_lost(error)

        protocol.connection_lost = connection_lost
        made: asyncio.Protocol = protocol
        return made

    def _say_closed(self) -> None:
        """Tell the dealer of one more connection that is closed, and of those it could not be."""
        self._unsaid += 1
        with suppress(OSError):  # it does not listen just now, or has ended
            self._unsaid -= self._dealt.send(b"." * self._unsaid)


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
