import re

import pytest

import serve.http.head
from serve.errors import BadRequest, HeadTooLarge, TargetTooLong
from serve.http.head import MAX_HEADERS, MAX_TARGET_BYTES, Head, check_beginning, read_head

LINE, HOST = b"POST /v1/classify?a=%20b HTTP/1.1\r\n", b"Host: localhost\r\n"
TOKEN = b"!#$%&'*+.^_`|~09AZaz-"


def read(*lines: bytes, first: bytes = LINE + HOST) -> Head:
    return read_head(first + b"".join(line + b"\r\n" for line in lines) + b"\r\n")


def test_head_is_read() -> None:
    head = read(b"X-A:  b \t c\t ", b"Empty:", TOKEN + b": \xe9~")
    assert head[:3] == ("POST", b"/v1/classify?a=%20b", "1.1")
    assert head.headers[0] == (b"host", b"localhost")
    assert head.headers[1:3] == [(b"x-a", b"b \t c"), (b"empty", b"")]
    assert head.headers[3] == (TOKEN.lower(), b"\xe9~")
    assert (head.num_body_bytes, head.keep_alive, head.expects_continue) == (0, True, False)


@pytest.mark.parametrize(
    ("line", "num_bytes"),
    [
        (b"Content-Length: 0015 ", 15),
        (b"content-length:" + b"9" * 18, 10**18 - 1),
        (b"Transfer-Encoding:\tCHUNKED", None),
    ],
)
def test_body_is_framed(line: bytes, num_bytes: int | None) -> None:
    assert read(line).num_body_bytes == num_bytes


@pytest.mark.parametrize(
    ("lines", "keep_alive"),
    [
        ([b"Connection: keep-alive"], True),
        ([b"Connection: closed, x-close"], True),
        ([b"Connection: keep-alive, CLOSE"], False),
        ([b"Connection: close", b"Connection: keep-alive"], False),
        ([b"Connection: upgrade", b"X: y", b"connection: x ,\tclose "], False),
    ],
)
def test_connection_ends_where_one_of_its_headers_says_so(
    lines: list[bytes], keep_alive: bool
) -> None:
    assert read(*lines).keep_alive is keep_alive


def test_continue_is_expected_in_http_1_1_only() -> None:
    assert read(b"Expect: x, 100-Continue").expects_continue
    old = read(b"Expect: 100-continue", b"Connection: keep-alive", first=b"GET / HTTP/1.0\r\n")
    assert (old.http_version, old.expects_continue, old.keep_alive) == ("1.0", False, False)


@pytest.mark.parametrize(
    "lines",
    [
        [b"Content-Length: " + value]
        for value in (b"", b"+5", b"-1", b"5, 5", b"0x5", b"5_0", b"\xb2", b"5 5", b"1" * 19)
    ]
    + [
        [b"Transfer-Encoding: " + value]
        for value in (
            b"",
            b"gzip",
            b"chunked, chunked",
            b"gzip, chunked",
            b"xchunked",
            b"chunked;a",
        )
    ]
    + [
        [b"Content-Length: 5", b"Content-Length: 5"],
        [b"Content-Length: 5", b"Transfer-Encoding: chunked"],
        [b"Transfer-Encoding: chunked", b"transfer-encoding: chunked"],
        [HOST.strip()],
        [b" folded"],
        [b"\tfolded"],
        [b"no colon"],
        [b": no name"],
        [b"space : before the colon"],
    ]
    + [[b"X: a" + bytes([byte]) + b"b"] for byte in {*range(32), 127} - {9}]
    + [[b"X" + bytes([byte]) + b"Y: z"] for byte in {*range(256)} - {*TOKEN, *range(48, 123), 58}],
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
        b"GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n",
        b"GET  / HTTP/1.1\r\n" + HOST,
        b"GET /a b HTTP/1.1\r\n" + HOST,
        b"GET\t/ HTTP/1.1\r\n" + HOST,
        b"GET /\xe9 HTTP/1.1\r\n" + HOST,
        b"GET / HTTP/1.1 \r\n" + HOST,
        b"G:T / HTTP/1.1\r\n" + HOST,
        b"GET /\r\n" + HOST,
        LINE[:-2] + b"\n" + HOST,
        LINE + HOST[:-2] + b"\n",
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
        with pytest.raises(TargetTooLong, match="longer than 8192 bytes"):
            read(first=b"GET " + longer + b" HTTP/1.1\r\n" + HOST)
    assert len(read(*[b"a:b"] * (MAX_HEADERS - 1)).headers) == MAX_HEADERS
    with pytest.raises(HeadTooLarge, match="more than 256 headers"):
        read(*[b"a:b"] * MAX_HEADERS)


@pytest.mark.parametrize(
    ("target", "host", "origin_form"),
    [
        (b"http://other/v1/classify?a=b", b"other", b"/v1/classify?a=b"),
        (b"HtTp://Other:80", b"Other:80", b"/"),
        (b"http://[::1]:80?a", b"[::1]:80", b"/?a"),
        (b"http://other//x@y", b"other", b"//x@y"),
    ],
)
def test_target_with_a_host_takes_the_place_of_the_header(
    target: bytes, host: bytes, origin_form: bytes
) -> None:
    head = read(b"A: b", first=b"GET " + target + b" HTTP/1.1\r\nA: c\r\n" + HOST)
    assert head.target == origin_form
    assert head.headers == [(b"host", host), (b"a", b"c"), (b"a", b"b")]


@pytest.mark.parametrize(
    "line",
    [
        *(b"GET " + target for target in (b"*", b"v1", b"http:/x", b"http://", b"http:///x")),
        *(b"GET " + target for target in (b"http://a@b/", b"http://a\\b/", b"http://a#b/")),
        *(b"GET " + target for target in (b"https://localhost/", b"ftp://a/", b"http://?a")),
        b"CONNECT localhost:80",
        b"OPTIONS **",
    ],
)
def test_target_that_is_neither_path_nor_address_is_refused(line: bytes) -> None:
    with pytest.raises(BadRequest, match="the target is no"):
        read(first=line + b" HTTP/1.1\r\n" + HOST)


def test_target_of_https_is_for_connections_with_tls() -> None:
    raw = b"GET https://localhost/a HTTP/1.1\r\n" + HOST + b"\r\n"
    assert read_head(raw, "https").target == b"/a"
    assert read_head(b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n").target == b"*"
