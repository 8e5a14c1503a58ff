"""Answers that clients do not take: what is held of them, and for whom."""

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import serve.access.held_bytes
from tests.serve.api.conftest import StartServer
from tests.serve.support.keys import make_key
from tests.serve.support.live_server import LiveServer, raw_request
from tests.support.patience import until

# Its answer has about 1.4 MB.
MANY_TOKENS = json.dumps({"inputs": "w1 " * 21_000}).encode()


Connect = Callable[..., socket.socket]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Return a client that takes nothing by itself."""
    with ExitStack() as stack:

        def connect(server: LiveServer, source: str = "127.0.0.1") -> socket.socket:
            client = stack.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.settimeout(60)
            client.bind((source, 0))
            client.connect(("127.0.0.1", server.port))
            return client

        yield connect


def tokenize(**headers: str) -> bytes:
    return raw_request("/tokenize", MANY_TOKENS, Connection="close", **headers)


def whole(client: socket.socket) -> bytes:
    """Return the answer, which is taken to its end."""
    return b"".join(iter(lambda: client.recv(65536), b""))


def test_request_is_in_flight_until_its_answer_is_taken(
    start_server: StartServer, tmp_path: Path, connect: Connect
) -> None:
    given = {"X-API-Key": make_key(tmp_path, "classify", in_flight=1)}
    server = start_server(keys=tmp_path / "keys.json", open_metrics=True)

    def status() -> int:
        path, ask = "/v1/classify", {"inputs": "w1"}
        return server.http.post(path, json=ask, headers=given).status_code

    client = connect(server)
    client.sendall(tokenize(**given))
    until(lambda: server.metric("offramp_unsent_bytes") > 1_000_000)
    assert status() == 429
    assert whole(client).startswith(b"HTTP/1.1 200")
    until(lambda: status() == 200)
    assert server.metric("offramp_unsent_bytes") == 0


def test_answers_that_are_not_taken_have_a_bound_for_each_client_and_for_all(
    start_server: StartServer,
    connect: Connect,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    most = 6_000_000  # four answers; a client may have two
    server = start_server(max_buffered_bytes=most)
    clients: list[socket.socket] = []

    def ask(source: str) -> None:
        client = connect(server, source)
        client.sendall(tokenize())
        clients.append(client)

    def refused() -> float:
        return server.metric("offramp_requests_total", route="/tokenize", code="429")

    for _ in range(6):
        ask("127.0.0.2")
    until(lambda: refused() == 4)
    for _ in range(6):
        ask("127.0.0.3")
    until(lambda: refused() == 8)
    assert b"\r\nconnection: close\r\n" in whole(clients[-1]).lower(), "and what follows is dropped"
    ask("127.0.0.4")
    until(lambda: refused() == 9)
    assert 4_000_000 < server.metric("offramp_unsent_bytes") <= most
    assert server.answer("w1")
    monkeypatch.setattr(serve.access.held_bytes, "STALLED_S", 0.0)
    ask("127.0.0.5")
    closed = "offramp_connections_closed_total"
    until(lambda: server.metric(closed, reason="unread") == 1)
    assert whole(clients[-1]).startswith(b"HTTP/1.1 200")
    for client in clients:
        client.close()
    until(lambda: server.metric("offramp_unsent_bytes") == 0)
