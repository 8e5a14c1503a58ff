import asyncio
import errno
import os
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import NamedTuple

import httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

import serve.http.server
from serve.http.listener import listen, listen_shared, take_port, take_shared_port
from serve.http.server import ACCEPTS_AT_ONCE, HttpServer
from serve.http.settings import ConnectionState

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


class App:
    """Answers with its name once `let` is set, without reading the request."""

    def __init__(self, name: str = "app", status: int = 200) -> None:
        self.asked = asyncio.Event()
        self.let = asyncio.Event()
        self.let.set()
        self._name, self._status = name, status

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"  # the caller runs the lifespan
        self.asked.set()
        await self.let.wait()
        await PlainTextResponse(self._name, self._status)(scope, receive, send)


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[httpx.AsyncClient]:
    url = f"http://127.0.0.1:{port}"
    async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as client:
        yield client


class Served(NamedTuple):
    """A server, the socket that it listens on, and what it tells of its connections."""

    server: HttpServer
    listening: socket.socket
    port: int
    state: ConnectionState


def serving(
    app: ASGIApp,
    scenario: Callable[[Served], Coroutine[None, None, None]],
    state: ConnectionState | None = None,
) -> None:
    """Run a scenario with a server, which is stopped in the end."""

    async def whole(host: str, port: int) -> None:
        told = state or ConnectionState()
        server, listening = HttpServer(app, state=told), listen_shared(host, port)
        await server.start(listening)
        await scenario(Served(server, listening, port, told))
        await asyncio.wait_for(server.stop(grace_s=0), timeout=20)

    with take_shared_port("127.0.0.1", 0) as address:
        asyncio.run(whole(*address.getsockname()))


def test_stopping_server_answers_what_it_accepted_while_another_takes_new_connections() -> None:
    app = App()

    async def scenario(served: Served) -> None:
        async with connected(served.port) as client:
            assert (await client.get("/")).text == "app"
            app.asked.clear()
            app.let.clear()
            answer = asyncio.create_task(client.get("/"))
            await app.asked.wait()
            stopping = asyncio.create_task(served.server.stop(grace_s=0))
            successor = HttpServer(App("successor"))
            await successor.start(listen_shared("127.0.0.1", served.port))
            while served.listening.fileno() >= 0:
                await asyncio.sleep(0)
            async with connected(served.port) as other:
                assert (await other.get("/")).text == "successor"
            assert not stopping.done()
            app.let.set()
            assert (await answer).text == "app"
            await stopping
            await successor.stop(grace_s=0)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", served.port), timeout=5)

    serving(app, scenario)


@pytest.mark.parametrize("sent_before", [True, False])
def test_connections_in_the_accept_queue_are_answered_before_the_end(
    sent_before: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve.http.server, "FIRST_REQUEST_S", 0.5)

    async def scenario(served: Served) -> None:
        # All at once: the loop must not accept one meanwhile.
        clients = [
            socket.create_connection(("127.0.0.1", served.port), timeout=60) for _ in range(40)
        ]
        for client in clients if sent_before else []:
            client.sendall(GET)
        stopping = asyncio.create_task(served.server.stop(grace_s=0))
        await asyncio.sleep(0.2)
        for client in [] if sent_before else clients:
            client.sendall(GET)
        await asyncio.wait_for(stopping, timeout=20)
        for client in clients:
            with client:
                assert client.recv(15) == b"HTTP/1.1 200 OK"

    serving(App(), scenario)


class Announcing(ConnectionState):
    """Lets clients connect and ask when the end is announced."""

    port: int
    clients: list[socket.socket]

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        if name == "stopping" and value:
            # With no grace, the event loop does not come to accept them.
            self.clients = [socket.create_connection(("127.0.0.1", self.port)) for _ in range(4)]
            for client in self.clients:
                client.sendall(GET)


def test_connections_that_come_just_before_the_listener_closes_are_answered() -> None:
    async def scenario(served: Served) -> None:
        state.port = served.port
        await served.server.stop(grace_s=0)
        for client in state.clients:
            with client:
                assert client.recv(15) == b"HTTP/1.1 200 OK"

    serving(App(), scenario, state := Announcing())


def test_answer_that_is_being_made_when_the_end_is_announced_says_so() -> None:
    app = App()

    async def scenario(served: Served) -> None:
        answer, asking = await asyncio.open_connection("127.0.0.1", served.port)
        app.let.clear()
        asking.write(GET)
        await app.asked.wait()
        stopping = asyncio.create_task(served.server.stop(grace_s=1))
        while not served.state.stopping:
            await asyncio.sleep(0)
        app.let.set()
        assert b"\r\nconnection: close\r\n" in await answer.readuntil(b"\r\n\r\n")
        await stopping
        asking.close()

    serving(app, scenario)


def test_request_that_is_half_sent_at_the_end_is_answered() -> None:
    async def scenario(served: Served) -> None:
        idle_answer, idle = await asyncio.open_connection("127.0.0.1", served.port)
        answer, asking = await asyncio.open_connection("127.0.0.1", served.port)
        idle.write(GET)
        await idle_answer.readuntil(b"\r\n\r\napp")
        asking.write(GET[:9])
        stopping = asyncio.create_task(served.server.stop(grace_s=0))
        assert await idle_answer.read() == b""  # the listener is closed, as are idle connections
        asking.write(GET[9:])
        whole = await answer.read()
        assert whole.startswith(b"HTTP/1.1 200")
        assert b"\r\nconnection: close\r\n" in whole
        await stopping
        for client in (idle, asking):
            client.close()

    serving(App(), scenario)


def test_caller_that_gives_up_waiting_for_the_end_ends_it_for_no_other() -> None:
    app = App()

    async def scenario(served: Served) -> None:
        async with connected(served.port) as client:
            app.let.clear()
            answer = asyncio.create_task(client.get("/"))
            await app.asked.wait()
            impatient, patient = (
                asyncio.create_task(served.server.stop(grace_s=0)) for _ in range(2)
            )
            await asyncio.sleep(0)
            impatient.cancel()
            with pytest.raises(asyncio.CancelledError):
                await impatient
            app.let.set()
            assert (await answer).text == "app"
            await patient

    serving(app, scenario)


def test_connections_that_come_without_end_leave_others_their_turn() -> None:
    async def scenario() -> None:
        state, num_clients = ConnectionState(), 3 * ACCEPTS_AT_ONCE
        server = HttpServer(App(), state=state)
        with take_port("127.0.0.1", 0) as address:
            listen(address)
            port = address.getsockname()[1]
            clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(num_clients)]
            await server.start(address)
            while not state.num_open:
                await asyncio.sleep(0)
            assert state.num_open <= ACCEPTS_AT_ONCE
            while state.num_open < num_clients:
                await asyncio.sleep(0)
            for client in clients:
                client.close()
            await server.stop(grace_s=0)

    asyncio.run(asyncio.wait_for(scenario(), timeout=60))


def test_accept_that_fails_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    accept, failures = socket.socket.accept, [errno.EMFILE, errno.ECONNABORTED]

    def failing(listening: socket.socket) -> tuple[socket.socket, object]:
        if failures:
            raise OSError(failures[-1], os.strerror(failures.pop()))
        return accept(listening)

    async def scenario(served: Served) -> None:
        monkeypatch.setattr(socket.socket, "accept", failing)
        async with connected(served.port) as client:
            assert (await client.get("/")).text == "app"
        assert not failures

    serving(App(), scenario)


def test_bytes_behind_the_last_request_do_not_cost_it_its_answer() -> None:
    app = App()

    async def scenario(served: Served) -> None:
        answer, asking = await asyncio.open_connection("127.0.0.1", served.port)
        app.let.clear()
        asking.write(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        await app.asked.wait()
        asking.write(GET)
        await asyncio.sleep(0.02)
        app.let.set()
        assert (await answer.read()).startswith(b"HTTP/1.1 200")
        asking.close()

    serving(app, scenario)


def test_answer_to_a_body_that_is_not_read_reaches_a_client_that_sends_all_first() -> None:
    async def scenario(served: Served) -> None:
        answer, asking = await asyncio.open_connection("127.0.0.1", served.port)
        for _ in range(2):  # the connection is kept
            asking.write(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3000000\r\n\r\n")
            asking.write(bytes(3_000_000))
            await asking.drain()
            assert (await answer.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 413")
            assert await answer.readexactly(9) == b"too large"
        asking.close()
        await asking.wait_closed()

    serving(App("too large", 413), scenario)
