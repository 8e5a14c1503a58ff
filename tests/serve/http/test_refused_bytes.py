"""Bytes that are no HTTP, or too much of it: refused in our JSON, and nothing else suffers."""

import asyncio
import socket
from contextlib import suppress
from pathlib import Path

import pytest
from fastapi import FastAPI

from serve.http.listener import listen, take_port
from serve.http.server import HttpServer
from serve.http.settings import Closed, ConnectionLimits, ConnectionState
from tests.serve.http.conftest import LIVE, StartLimited, refusal
from tests.serve.support.certificates import NEEDS_OPENSSL, Authority

CHUNKED = (
    b"POST /v1/classify HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)


@pytest.mark.parametrize("first", [True, False])
def test_head_that_is_too_large_is_refused_also_where_it_comes_at_once(
    start_limited: StartLimited, first: bool
) -> None:
    served = start_limited(max_head_bytes=2000)
    client, head = served.connect(), LIVE[:-2] + b"X: "
    if not first:
        client.send(head.ljust(1996, b"x") + b"\r\n\r\n")
        assert client.answer().startswith(b"HTTP/1.1 200")
    client.send(head.ljust(1999, b"x") + b"\r\n\r\n")  # two spaces are optional
    assert refusal(client.rest())[:2] == (431, "head_too_large")
    assert served.state.closed == {Closed.BAD_REQUEST: 1}


def test_head_in_many_small_pieces_stalls_no_other_request(start_limited: StartLimited) -> None:
    served = start_limited()
    client = served.connect()
    client.send(LIVE[:-2] + b"X: ")
    client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for number in range(12_000):
        client.send(b"a:b, ")
        if number % 1000 == 0:
            assert served.live.answer("w1")
    client.send(b"\r\n\r\n")
    assert client.answer().startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    ("begin", "endless"),
    [(b"0\r\n", b"a: b\r\n"), (b"", b"5;a=b"), (b"5", b";a=b"), (b"0\r\n", b"a: bbbb")],
)
def test_trailers_and_chunk_extensions_have_an_end(
    start_limited: StartLimited, begin: bytes, endless: bytes
) -> None:
    served = start_limited()
    client = served.connect()
    client.send(CHUNKED + begin)
    with suppress(OSError):  # refused before all is sent
        for _ in range(100):
            client.send(endless * 1000)
    client.rest()
    assert served.state.closed == {Closed.BAD_REQUEST: 1}
    assert served.live.answer("w1")


@NEEDS_OPENSSL
@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01", LIVE])
def test_tls_handshake_that_fails_or_never_ends_closes_the_connection(
    sent: bytes, tmp_path: Path
) -> None:
    state = ConnectionState()

    async def scenario() -> None:
        tls = Authority(tmp_path / "ca").sign("server")
        server = HttpServer(FastAPI(), ConnectionLimits(head_timeout_s=0.2), state, tls)
        with take_port("127.0.0.1", 0) as address:
            listen(address)
            await server.start(address)
            answer, asking = await asyncio.open_connection(*address.getsockname())
            asking.write(sent)
            with suppress(ConnectionResetError):
                await asyncio.wait_for(answer.read(), 30)
            asking.close()
            await server.stop(grace_s=0)

    asyncio.run(scenario())
    assert state.closed == {Closed.TLS_HANDSHAKE: 1}
    assert not state.num_open


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",  # TLS
        LIVE[:-2] + b"Content-Length: 1, 2\r\n\r\n",
        CHUNKED + b"x\r\n",
    ],
    ids=["TLS", "head", "body"],
)
def test_what_is_no_http_is_refused_in_json(
    start_limited: StartLimited, caplog: pytest.LogCaptureFixture, sent: bytes
) -> None:
    served = start_limited()
    client = served.connect()
    client.send(sent)
    assert refusal(client.rest())[:2] == (400, "bad_request")
    assert served.state.closed == {Closed.BAD_REQUEST: 1}
    assert not [record for record in caplog.records if record.exc_info]
