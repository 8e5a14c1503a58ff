import asyncio
import logging
import os
import select
import socket
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from logging.handlers import MemoryHandler
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

import serve.http.server
from serve.http.connection_dealer import ConnectionDealer
from serve.http.listener import take_port
from serve.http.server import HttpServer


class App:
    """Answers with its name, and not before it is let."""

    def __init__(self, name: str = "app") -> None:
        self.asked = asyncio.Event()
        self.let = asyncio.Event()
        self.let.set()
        self._name = name

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"  # its lifespan is somebody else's
        self.asked.set()
        await self.let.wait()
        await PlainTextResponse(self._name)(scope, receive, send)


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[httpx.AsyncClient]:
    url = f"http://127.0.0.1:{port}"
    async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as client:
        yield client


def with_dealer(scenario: Callable[[ConnectionDealer, int], Coroutine[None, None, None]]) -> None:
    with take_port("127.0.0.1", 0) as address:
        port = address.getsockname()[1]
        with ConnectionDealer(address) as dealer:
            dealer.listen()
            asyncio.run(scenario(dealer, port))


async def until_open(dealer: ConnectionDealer, number: int) -> None:
    """Wait until the dealer thinks that the only one who takes part has so many connections."""
    async with asyncio.timeout(60):
        while [*dealer._open.values()] != [number]:
            await asyncio.sleep(0.01)


def test_what_was_taken_in_is_answered_and_nothing_else_taken() -> None:
    async def scenario(dealer: ConnectionDealer, port: int) -> None:
        app = App()
        server = HttpServer(app, dealer.place)
        await server.start()
        async with connected(port) as client:
            assert (await client.get("/")).text == "app"
            app.asked.clear()
            app.let.clear()
            answer = asyncio.create_task(client.get("/"))
            await app.asked.wait()
            stopping = asyncio.create_task(server.stop())
            _, waiting = await asyncio.open_connection("127.0.0.1", port)
            successor = HttpServer(App("successor"), dealer.place)
            await successor.start()
            async with connected(port) as other:
                assert (await other.get("/")).text == "successor"
            assert not stopping.done()
            app.let.set()
            assert (await answer).text == "app"
            await stopping
            waiting.close()
            await successor.stop()

    with_dealer(scenario)


def test_connection_that_was_dealt_but_not_taken_yet_is_taken_before_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(dealer: ConnectionDealer, port: int) -> None:
        server = HttpServer(App(), dealer.place)

        async def until_told() -> None:  # uvicorn looks ten times a second
            while not server._server.should_exit:
                await asyncio.sleep(0)

        monkeypatch.setattr(server._server, "main_loop", until_told)
        await server.start()
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            client.settimeout(60)
            while not select.select([server._dealt], [], [], 0)[0]:
                time.sleep(0.01)  # the loop must not see it meanwhile
            await asyncio.wait_for(server.stop(), timeout=20)  # not as long as uvicorn would wait
            assert client.recv(15) == b"HTTP/1.1 200 OK"

    with_dealer(scenario)


def test_the_dealer_hears_of_connections_that_are_closed() -> None:
    async def scenario(dealer: ConnectionDealer, port: int) -> None:
        server = HttpServer(App(), dealer.place)
        await server.start()
        async with connected(port) as client:
            for _ in range(3):
                assert (await client.get("/")).text == "app"
            await until_open(dealer, 1)
            async with connected(port) as other:
                assert (await other.get("/")).text == "app"
                await until_open(dealer, 2)
            await until_open(dealer, 1)
        await until_open(dealer, 0)
        await server.stop()

    with_dealer(scenario)


PROPOSALS = {
    "h2c": b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n",
    "websocket": b"Connection: Upgrade\r\nupgrade: websocket\r\n",
    "nothing": b"",
}


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    await PlainTextResponse(await Request(scope, receive).body())(scope, receive, send)


@pytest.mark.parametrize("first", PROPOSALS)
@pytest.mark.parametrize("then", PROPOSALS)
def test_requests_that_propose_another_protocol_keep_their_bodies(
    first: str, then: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(dealer: ConnectionDealer, port: int) -> None:
        server = HttpServer(echo, dealer.place)
        await server.start()
        answer, asking = await asyncio.open_connection("127.0.0.1", port)
        for number, proposed in enumerate([first, then, first]):
            body = b"body %d" % number
            head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\n"
            asking.write(head + PROPOSALS[proposed] + b"\r\n" + (body if number else b""))
            if not number:  # as clients do that send the head by itself
                await asyncio.sleep(0.02)
                asking.write(body)
            assert (await answer.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
            assert await answer.readexactly(6) == body
        await until_open(dealer, 1)
        assert len(server._server.server_state.connections) == 1
        asking.close()
        await asking.wait_closed()
        await until_open(dealer, 0)
        assert not server._server.server_state.connections
        await server.stop()

    with_dealer(scenario)
    assert not caplog.records


def test_proposal_in_the_second_piece_of_a_head_harms_no_request() -> None:
    async def scenario(dealer: ConnectionDealer, port: int) -> None:
        server = HttpServer(App(), dealer.place)
        await server.start()
        answer, asking = await asyncio.open_connection("127.0.0.1", port)
        asking.write(b"GET / HTTP/1.1\r\nHost: x")
        await asyncio.sleep(0.05)
        asking.write(b"\r\n" + PROPOSALS["h2c"] + b"\r\n")
        assert (await answer.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        assert await answer.readexactly(3) == b"app"
        asking.close()
        await asking.wait_closed()
        await server.stop()

    with_dealer(scenario)


UPGRADE = b"\r\n".join(
    [
        b"GET / HTTP/1.1",
        b"Host: x",
        b"Connection: Upgrade",
        b"Upgrade: websocket",
        b"Sec-WebSocket-Version: 13",
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        b"\r\n",
    ]
)


def test_who_asks_for_a_websocket_gets_an_answer_and_is_not_counted_for_ever() -> None:
    async def scenario(dealer: ConnectionDealer, port: int) -> None:
        server = HttpServer(App(), dealer.place)
        await server.start()
        for _ in range(3):
            answer, asking = await asyncio.open_connection("127.0.0.1", port)
            asking.write(UPGRADE)
            assert await answer.readuntil(b"app")
            asking.close()
            await asking.wait_closed()
        await until_open(dealer, 0)
        await server.stop()

    with_dealer(scenario)


@pytest.mark.parametrize("seen", [True, False])
def test_dealer_may_end_before_it_has_heard_what_was_said(tmp_path: Path, seen: bool) -> None:
    async def scenario(entrance: socket.socket, place: str) -> None:
        server = HttpServer(App(), place)
        await server.start()
        with entrance.accept()[0]:
            server._say_closed()
        if seen:
            await asyncio.sleep(0.05)
        await server.stop()
        assert server._dealt.fileno() < 0

    with socket.socket(socket.AF_UNIX) as entrance:
        entrance.bind(str(tmp_path / "s"))
        entrance.listen()
        asyncio.run(scenario(entrance, str(tmp_path / "s")))


def test_what_the_dealer_could_not_be_told_it_hears_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(dealer: ConnectionDealer, port: int) -> None:
        server = HttpServer(App(), dealer.place)
        await server.start()
        with socket.socket() as alone, monkeypatch.context() as patched:
            patched.setattr(server, "_dealt", alone)
            server._say_closed()
        server._say_closed()
        await until_open(dealer, -2)
        await server.stop()

    with_dealer(scenario)


def test_connection_for_which_there_is_no_descriptor_left_is_not_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The system then passes the byte alone, and closes the connection."""
    receive, lacking = socket.recv_fds, [True]

    def receive_without(*given: Any) -> Any:
        data, descriptors, flags, place = receive(*given)
        if descriptors and lacking:
            lacking.pop()
            os.close(descriptors.pop())
        return data, descriptors, flags, place

    async def scenario(dealer: ConnectionDealer, port: int) -> None:
        monkeypatch.setattr(socket, "recv_fds", receive_without)
        # Said at once, it would be who has the fewest, and be dealt all that follow.
        monkeypatch.setattr(serve.http.server, "_NO_ROOM_S", 0.5)
        server = HttpServer(App(), dealer.place)
        await server.start()
        async with connected(port) as client:
            with pytest.raises(httpx.HTTPError):
                await client.get("/")
            assert (await client.get("/")).text == "app"
            await until_open(dealer, 2)
            await until_open(dealer, 1)
        assert not lacking
        await server.stop()

    with_dealer(scenario)


def test_who_gives_up_waiting_for_the_end_ends_it_for_nobody_else() -> None:
    async def scenario(dealer: ConnectionDealer, port: int) -> None:
        app = App()
        server = HttpServer(app, dealer.place)
        await server.start()
        async with connected(port) as client:
            app.let.clear()
            answer = asyncio.create_task(client.get("/"))
            await app.asked.wait()
            impatient, patient = (asyncio.create_task(server.stop()) for _ in range(2))
            await asyncio.sleep(0)
            impatient.cancel()
            with pytest.raises(asyncio.CancelledError):
                await impatient
            app.let.set()
            assert (await answer).text == "app"
            await patient

    with_dealer(scenario)


def test_server_goes_on_when_the_dealer_has_ended() -> None:
    async def scenario() -> None:
        with take_port("127.0.0.1", 0) as address:
            port = address.getsockname()[1]
            with ConnectionDealer(address) as dealer:
                dealer.listen()
                server = HttpServer(App(), dealer.place)
                await server.start()
                async with connected(port) as client:
                    await client.get("/")
                    await asyncio.to_thread(dealer.close)
                    assert (await client.get("/")).text == "app"
                    await server.stop()

    asyncio.run(scenario())


def test_without_a_dealer_it_does_not_start(tmp_path: Path) -> None:
    async def scenario() -> None:
        server = HttpServer(App(), str(tmp_path / "socket"))
        with pytest.raises(FileNotFoundError):
            await server.start()
        await server.stop()

    asyncio.run(scenario())


def test_what_others_log_goes_where_it_went(tmp_path: Path) -> None:
    """Ray Serve's controller asks its replicas for that place, and ends those that have none."""
    kept = MemoryHandler(1, target=logging.NullHandler())
    try:
        HttpServer(App(), str(tmp_path / "socket"))._dealt.close()
        assert kept.target
    finally:
        kept.close()
