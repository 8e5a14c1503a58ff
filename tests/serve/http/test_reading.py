"""Heads and bodies, as strictly as RFC 9112 allows; `test_fuzz.py` compares them with h11."""

import re

import pytest

import serve.http.head
from serve.errors import BadRequest, HeadTooLarge, TargetTooLong
from serve.http.framing import MAX_CHUNKS_AT_ONCE, MAX_SMALL_CHUNKS, Body, ChunkedBody
from serve.http.head import MAX_HEADERS, MAX_TARGET_BYTES, Head, check_beginning, read_head

LINE, HOST = b"POST /v1/classify?a=%20b HTTP/1.1\r\n", b"Host: localhost\r\n"
TOKEN = b"!#$%&'*+.^_`|~09AZaz-"
NO_TEXT = {*range(32), 127} - {9}  # bytes that no value has
NO_TOKEN = {*range(256)} - {*TOKEN, *b":", *range(48, 58), *range(65, 91), *range(97, 123)}


def read(*lines: bytes, first: bytes = LINE + HOST) -> Head:
    return read_head(first + b"".join(line + b"\r\n" for line in lines) + b"\r\n")


def test_head_is_read() -> None:
    head = read(b"X-A:  b \t c\t ", b"Empty:", TOKEN + b": \xe9~")
    assert head[:3] == ("POST", b"/v1/classify?a=%20b", "1.1")
    assert head.headers == [
        (b"host", b"localhost"),
        (b"x-a", b"b \t c"),
        (b"empty", b""),
        (TOKEN.lower(), b"\xe9~"),
    ]
    assert (head.num_body_bytes, head.keep_alive, head.expects_continue) == (0, True, False)


@pytest.mark.parametrize(
    ("lines", "field", "value"),
    [
        ([b"Content-Length: 0015 "], "num_body_bytes", 15),
        ([b"content-length:" + b"9" * 18], "num_body_bytes", 10**18 - 1),
        ([b"Transfer-Encoding:\tCHUNKED"], "num_body_bytes", None),
        ([b"Connection: keep-alive"], "keep_alive", True),
        ([b"Connection: closed, x-close"], "keep_alive", True),
        ([b"Connection: keep-alive, CLOSE"], "keep_alive", False),
        ([b"Connection: close", b"Connection: keep-alive"], "keep_alive", False),
        ([b"Connection: upgrade", b"X: y", b"connection: x ,\tclose "], "keep_alive", False),
        ([b"Expect: x, 100-Continue"], "expects_continue", True),
    ],
)
def test_headers_of_the_connection_are_heeded(
    lines: list[bytes], field: str, value: object
) -> None:
    assert getattr(read(*lines), field) == value


def test_http_1_0_neither_stays_nor_continues() -> None:
    head = read(b"Expect: 100-continue", b"Connection: keep-alive", first=b"GET / HTTP/1.0\r\n")
    assert (head.http_version, head.expects_continue, head.keep_alive) == ("1.0", False, False)


@pytest.mark.parametrize(
    "lines",
    [
        *([b"Content-Length: " + value] for value in (b"", b"0x5", b"5_0", b"\xb2", b"5 5")),
        [b"Content-Length: " + b"1" * 19],
        *([b"Transfer-Encoding: " + value] for value in (b"", b"chunked, chunked", b"chunked;a")),
        [b"Content-Length: 5", b"Content-Length: 5"],
        [b"Transfer-Encoding: chunked", b"transfer-encoding: chunked"],
        [HOST.strip()],
        [b" folded"],
        [b"\tfolded"],
        [b"no colon"],
        [b": no name"],
        [b"space : before the colon"],
        *([b"X: a" + bytes([byte]) + b"b"] for byte in NO_TEXT),
        *([b"X" + bytes([byte]) + b"Y: z"] for byte in NO_TOKEN),
    ],
)
def test_header_that_another_server_may_read_in_another_way_is_refused(lines: list[bytes]) -> None:
    with pytest.raises(BadRequest):
        read(*lines)


@pytest.mark.parametrize(
    "first",
    [
        LINE,  # without Host
        b"\r\n" + LINE + HOST,
        *(LINE.replace(b"1.1", version) + HOST for version in (b"1.2", b"2.0", b"1.10", b"0.9")),
        LINE.replace(b"HTTP", b"http") + HOST,
        LINE[:-2] + b"\n" + HOST,
        LINE + HOST[:-2] + b"\n",
        b"GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n",
        *(
            line + b"\r\n" + HOST
            for line in (
                *(b"GET  / HTTP/1.1", b"GET /a b HTTP/1.1", b"GET\t/ HTTP/1.1", b"GET / HTTP/1.1 "),
                *(b"GET /\xe9 HTTP/1.1", b"G:T / HTTP/1.1", b"GET /"),
                *(b"CONNECT localhost:80 HTTP/1.1", b"OPTIONS ** HTTP/1.1"),
            )
        ),
        *(
            b"GET " + target + b" HTTP/1.1\r\n" + HOST
            for target in (
                *(b"*", b"v1", b"http:/x", b"http://", b"http:///x", b"http://?a", b"ftp://a/"),
                *(b"http://a@b/", b"http://a\\b/", b"http://a#b/", b"https://localhost/"),
            )
        ),
    ],
)
def test_request_line_or_line_end_that_is_none_is_refused(first: bytes) -> None:
    with pytest.raises(BadRequest):
        read(first=first)


def test_hopeless_beginning_is_refused_wherever_it_was_cut() -> None:
    good, bare = bytearray(LINE + b"Host"), bytearray(b"GET / HTTP/1.1\n")
    for checked in range(len(good)):
        check_beginning(good, checked)
    for hopeless, checked in ((bare, 0), (bare, len(bare) - 1), (bytearray(b"\x16\x03\x01"), 0)):
        with pytest.raises(BadRequest):
            check_beginning(hopeless, checked)


def test_searches_through_a_head_jump_to_a_literal() -> None:
    """Others stop at every byte: a head of 64 KiB that never ends would cost milliseconds."""
    patterns = vars(serve.http.head).values()
    searched = [p for p in patterns if isinstance(p, re.Pattern) and b"(?<" in p.pattern]
    assert searched
    assert all(p.pattern[:1].isalnum() or p.pattern[:2] == rb"\n" for p in searched)


def test_target_and_number_of_headers_have_a_bound() -> None:
    most = b"/".ljust(MAX_TARGET_BYTES, b"a")
    assert read(first=b"GET " + most + b" HTTP/1.1\r\n" + HOST).target == most
    for longer in (most + b"a", b"http://a" + most, b"/?" + most):
        with pytest.raises(TargetTooLong):
            read(first=b"GET " + longer + b" HTTP/1.1\r\n" + HOST)
    assert len(read(*[b"a:b"] * (MAX_HEADERS - 1)).headers) == MAX_HEADERS
    with pytest.raises(HeadTooLarge):
        read(*[b"a:b"] * MAX_HEADERS)


@pytest.mark.parametrize(
    ("target", "scheme", "host", "origin_form"),
    [
        (b"http://other/v1/classify?a=b", "http", b"other", b"/v1/classify?a=b"),
        (b"HtTp://Other:80", "http", b"Other:80", b"/"),
        (b"http://[::1]:80?a", "http", b"[::1]:80", b"/?a"),
        (b"http://other//x@y", "http", b"other", b"//x@y"),
        (b"https://other/a", "https", b"other", b"/a"),
    ],
)
def test_target_with_a_host_takes_the_place_of_the_header(
    target: bytes, scheme: str, host: bytes, origin_form: bytes
) -> None:
    raw = b"GET " + target + b" HTTP/1.1\r\nA: c\r\n" + HOST + b"A: b\r\n\r\n"
    head = read_head(raw, scheme)
    assert head.target == origin_form
    assert head.headers == [(b"host", host), (b"a", b"c"), (b"a", b"b")]


def taken(body: Body, pieces: list[bytes]) -> tuple[bytes, bytes]:
    """Return the content, and what is left of the pieces."""
    content, received = b"", bytearray()
    for piece in pieces:
        received += piece
        while not body.ended:
            content += body.take(received)
            if not body.behind:
                break
    return content, bytes(received)


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        *(
            (first + b"\r\nhello\r\n0\r\n\r\n", BadRequest)
            for first in (b"", b"x", b"0x5", b"+5", b"-5", b" 5", b"5 ", b"5 ;a", b"5_0", b"5,5")
        ),
        *((b"5;a" + bytes([byte]) + b"b\r\nhello\r\n0\r\n\r\n", BadRequest) for byte in NO_TEXT),
        *(
            (b"5\r\nhello" + end + b"0\r\n\r\n", BadRequest)
            for end in (b"", b"\n", b"\r", b"XX", b"\r\n\r\n", b"!\r\n")
        ),
        (b"0" * 15 + b"5\r\nhello\r\n0\r\n\r\n", BadRequest),
        *(
            (b"0\r\n" + trailer + b"\r\n\r\n", BadRequest)
            for trailer in (b" X: y", b"X : y", b"X: y\n", b"GET / HTTP/1.1")
        ),
        (b"1;" + b"a" * 50 + b"\r\nx\r\n1;" + b"a" * 50 + b"\r\n", HeadTooLarge),
        (b"1;" + b"a" * 200, HeadTooLarge),
        (b"0\r\n" + b"X: y\r\n" * 20, HeadTooLarge),
        (b"0\r\n" + b"X: y\r\n" * 20 + b"\r\n", HeadTooLarge),
        (b"0" * 200, HeadTooLarge),
    ],
)
def test_chunks_that_are_malformed_or_carry_too_much_are_refused(
    sent: bytes, error: type[Exception]
) -> None:
    for pieces in ([sent], [bytes([byte]) for byte in sent]):
        with pytest.raises(error):
            taken(ChunkedBody(100), pieces)


def test_a_body_may_not_come_in_any_number_of_small_chunks() -> None:
    few = b"1\r\nx\r\n" * MAX_SMALL_CHUNKS
    assert taken(ChunkedBody(100), [few])[0] == b"x" * MAX_SMALL_CHUNKS
    with pytest.raises(BadRequest):
        taken(ChunkedBody(100), [few * 2])
    large = b"40\r\n" + b"x" * 64 + b"\r\n"
    assert len(taken(ChunkedBody(100), [large * 3 * MAX_SMALL_CHUNKS])[0]) == 192 * MAX_SMALL_CHUNKS


def test_so_many_chunks_are_taken_at_a_time() -> None:
    body, received = ChunkedBody(100), bytearray(b"1\r\nx\r\n" * (2 * MAX_CHUNKS_AT_ONCE))
    for _ in range(2):
        assert not body.ended
        assert 0 < len(body.take(received)) <= MAX_CHUNKS_AT_ONCE
        assert body.behind
    body.take(received)
    assert not body.behind
