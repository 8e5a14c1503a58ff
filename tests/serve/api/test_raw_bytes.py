"""Bytes that are no request, or nearly one: refused or answered in time, never with a 5xx."""

import json
import logging
import re
import socket
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.serve.api.conftest import StartServer
from tests.serve.support.live_server import LiveServer
from tests.serve.support.openapi_fuzz import SHORT, check_unharmed

BODY = json.dumps({"inputs": "w1"}).encode()
GOOD = (
    b"POST /v1/classify HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n%s" % (len(BODY), BODY)
)
# Longer than the bodies that `HEADERS` announce.
LAST = b"\r\n\r\nGET /health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"

METHODS = [b"GET", b"POST", b"PUT", b"HEAD", b"OPTIONS", b"CONNECT", b"TRACE", b"get", b"PRI"]
TARGETS = [
    b"/health/ready",
    b"/v1/classify",
    b"/v1/models/tiny/policy",
    b"/v1/models/%00%ff%2f../policy",
    b"/v1/classify?inputs=%ff",
    b"http://evil.example/metrics",
    b"//metrics",
    b"*",
]
HOST = b"Host: localhost"
HEADERS = [
    HOST,
    b"Host: [::1",
    b"Content-Type: application/json",
    b"Content-Length: 16",
    b"Content-Length: -1",
    b"Content-Length: " + b"9" * 5000,
    b"Content-Length: 16, 16",
    b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: gzip, chunked",
    b"Expect: 100-continue",
    b"Connection: Upgrade, HTTP2-Settings",
    b"Upgrade: h2c",
    b"X-Request-Id: " + b"x" * 5000,
    b"Authorization: Bearer \xff",
    b" folded",
    b": nameless",
]
VERSIONS = [b"HTTP/1.1"] * 16 + [b"HTTP/1.0", b"HTTP/0.9", b"HTTP/2.0", b"HTTP/11.1", b""]
ENDS = [b"\r\n"] * 30 + [b"\n", b"\r", b"\r\n\r\n", b"\x00"]
BODIES = [BODY, b"5\r\nhello\r\n0\r\n\r\n", b"ffffffffffffffff\r\n"]
NOISE = st.binary(max_size=30)


def mostly(values: list[bytes]) -> st.SearchStrategy[bytes]:
    # Noise in one part of twelve, as several of them make a request.
    return st.integers(1, 12).flatmap(lambda n: NOISE if n == 12 else st.sampled_from(values))


@st.composite
def made_up(draw: st.DrawFn) -> bytes:
    first = b" ".join(map(draw, (mostly(METHODS), mostly(TARGETS), mostly(VERSIONS))))
    lines = [first, HOST, *draw(st.lists(mostly(HEADERS), max_size=4))]
    head = b"".join(line + draw(st.sampled_from(ENDS)) for line in lines)
    return head + b"\r\n" + draw(mostly(BODIES))


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    request = GOOD
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(request)))
        request = request[:place] + draw(NOISE) + request[place + draw(st.integers(0, 8)) :]
    return request


def talk(server: LiveServer, pieces: list[bytes]) -> bytes:
    """Return all that the server answers until it closes the connection."""
    answer = b""
    with server.half_sent(b"") as connection, suppress(ConnectionError):
        for piece in pieces:
            connection.sendall(piece)
        connection.settimeout(0.2)
        try:
            while part := connection.recv(65536):
                answer += part
        except TimeoutError:  # the server waits for more
            connection.shutdown(socket.SHUT_WR)
            connection.settimeout(20)
            while part := connection.recv(65536):
                answer += part
    return answer


def test_no_bytes_make_the_server_fail_or_hang(
    start_server: StartServer, caplog: pytest.LogCaptureFixture
) -> None:
    server = start_server()

    @settings(derandomize=settings.default.max_examples <= SHORT, database=None)
    @given(sent=st.one_of(made_up(), damaged()), cut=st.integers(0, 400))
    def check(sent: bytes, cut: int) -> None:
        answer = talk(server, [sent[:cut], sent[cut:] + LAST])
        statuses = [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", answer)]
        assert answer == b"" or statuses
        assert all(100 <= status < 500 for status in statuses), answer

    check()
    assert [r.message for r in caplog.records if r.levelno >= logging.ERROR] == []
    check_unharmed(server)


@pytest.mark.parametrize("method", [b"GET", b"HEAD"])
def test_malformed_body_that_the_app_does_not_wait_for_leaves_no_traceback(
    server: LiveServer, caplog: pytest.LogCaptureFixture, method: bytes
) -> None:
    head = b" /health/live HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert b" 400 " in talk(server, [method + head + b"no chunk\r\n"])
    assert [r.message for r in caplog.records if r.levelno >= logging.ERROR] == []
