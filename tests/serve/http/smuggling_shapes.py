"""Requests that two HTTP parsers may read in two ways, each with a whole other one hidden inside.

The hidden request is where RFC 9112 says it is none: in a body, in a chunk's extension, or behind
a head that has to be refused. A parser that reads the outer request another way would run it.
"""

from collections.abc import Iterator
from typing import NamedTuple

POLICY = "/v1/models/tiny/policy"
HIDDEN_ID = b"hidden-request"
_POLICY_BODY = b'{"policy": {}}'
HIDDEN = b"".join(
    [
        b"PUT /v1/models/tiny/policy HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: " + HIDDEN_ID,
        b"\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(_POLICY_BODY),
        _POLICY_BODY,
    ]
)
# A whole legal request, for the shapes that put something behind or in front of one.
BODY = b'{"inputs": "a"}'
_POST = b"POST /v1/classify HTTP/1.1\r\n"
_HOST = b"Host: localhost\r\n"
_TYPE = b"Content-Type: application/json\r\n"
_CHUNKED = b"Transfer-Encoding: chunked\r\n"
_LAST = b"0\r\n\r\n"
# Whole requests without a body, and behind them bytes that begin none.
_BYTES_BEHIND = {"line: LF CR", "head: HTTP/2 preface"}
_UPGRADE = b"Connection: Upgrade\r\nUpgrade: foo\r\n"


class Shape(NamedTuple):
    """What a client sends, piece by piece."""

    name: str
    pieces: list[bytes]
    # Requests that the client framed legally, at most; and bytes behind them that are refused.
    max_answers: int = 1


def _length(value: bytes | int) -> bytes:
    return b"Content-Length: %b\r\n" % (b"%d" % value if isinstance(value, int) else value)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def request(headers: bytes, body: bytes = HIDDEN, line: bytes = _POST) -> bytes:
    """Return a request to classify whose framing is up to the headers."""
    return line + _HOST + _TYPE + headers + b"\r\n" + body


LEGAL = request(_length(len(BODY)), BODY)


def all_shapes() -> list[Shape]:
    """Return every shape; the names are all different."""
    whole = [
        *_named("framing", _two_framings()),
        *_named("coding", _transfer_codings()),
        *_named("chunk", _chunks()),
        *_named("length", _lengths()),
        *_named("line", _lines()),
        *_named("head", _heads()),
    ]
    return [*_upgrades(), *whole, *_cut(whole), *_pipelined()]


def _named(kind: str, sent: dict[str, bytes]) -> list[Shape]:
    names = {f"{kind}: {name}": data for name, data in sent.items()}
    return [Shape(name, [data], 1 + (name in _BYTES_BEHIND)) for name, data in names.items()]


def _upgrades() -> Iterator[Shape]:
    """A parser that changes at an upgrade loses count of the body: the body comes by itself."""
    head = request(_UPGRADE + _length(len(HIDDEN)), b"")
    start = head.index(_UPGRADE)
    for at in sorted({*range(1, len(head), 7), *range(start, start + len(_UPGRADE) + 1)}):
        yield Shape(f"upgrade: cut at {at}", [head[:at], head[at:], HIDDEN])
        yield Shape(f"upgrade: cut at {at}, body at once", [head[:at], head[at:] + HIDDEN])
        yield Shape(f"upgrade: busy, cut at {at}", [LEGAL + head[:at], head[at:], HIDDEN], 2)
    for at in range(1, len(HIDDEN), 7):
        yield Shape(f"upgrade: body cut at {at}", [head + HIDDEN[:at], HIDDEN[at:]])
    yield Shape("upgrade: at once", [head + HIDDEN])
    yield Shape("upgrade: body by itself", [head, HIDDEN])
    yield Shape("upgrade: busy, at once", [LEGAL + head + HIDDEN], 2)
    yield Shape("upgrade: busy, body by itself", [LEGAL + head, HIDDEN], 2)
    yield Shape("upgrade: busy, by itself", [LEGAL, head + HIDDEN], 2)
    yield Shape("upgrade: every byte by itself", [bytes([byte]) for byte in head + HIDDEN])
    for protocol in (b"websocket", b"h2c", b"TLS/1.0", b"HTTP/2.0, foo"):
        headers = b"Connection: keep-alive, Upgrade\r\nUpgrade: %b\r\n" % protocol
        other = request(headers + _length(len(HIDDEN)), b"")
        yield Shape(f"upgrade: to {protocol.decode()}", [other[:70], other[70:], HIDDEN])


def _two_framings() -> dict[str, bytes]:
    behind = _LAST + HIDDEN
    half = _chunk(HIDDEN)
    return {
        "CL.TE": request(_length(len(behind)) + _CHUNKED, behind),
        "CL.TE in the other order": request(_CHUNKED + _length(len(behind)), behind),
        "CL.TE with a data chunk": request(
            _length(len(_chunk(BODY) + behind)) + _CHUNKED, _chunk(BODY) + behind
        ),
        "TE.CL": request(_length(half.index(b"PUT")) + _CHUNKED, half + _LAST),
        "TE.CL of zero": request(_length(0) + _CHUNKED, half + _LAST),
        "TE and two CL": request(_length(4) + _length(5) + _CHUNKED, half + _LAST),
        "upgrade, CL.TE": request(_UPGRADE + _length(len(behind)) + _CHUNKED, behind),
        "upgrade, TE.CL": request(_UPGRADE + _length(4) + _CHUNKED, half + _LAST),
        "CL.TE of HTTP/1.0": request(
            b"Connection: keep-alive\r\n" + _length(len(behind)) + _CHUNKED,
            behind,
            b"POST /v1/classify HTTP/1.0\r\n",
        ),
        "CL named in Connection": request(
            b"Connection: keep-alive, Content-Length\r\n" + _length(len(HIDDEN))
        ),
        "TE named in Connection": request(
            b"Connection: keep-alive, Transfer-Encoding\r\n" + _CHUNKED, half + _LAST
        ),
    }


def _transfer_codings() -> dict[str, bytes]:
    """Codings that are none, or no plain chunked: with a length, and with no other framing.

    A parser that goes by the length or the chunks sees no second request, one that overlooks the
    coding does.
    """
    behind = _LAST + HIDDEN
    fields = [
        b"Transfer-Encoding: xchunked",
        b"Transfer-Encoding: chunkedx",
        b"Transfer-Encoding:\tchunked",
        b"Transfer-Encoding: \x0bchunked",
        b"Transfer-Encoding: \x0cchunked",
        b"Transfer-Encoding: chunked\x0b",
        b"Transfer-Encoding: chunked\x00",
        b"Transfer-Encoding: chunked, identity",
        b"Transfer-Encoding: identity, chunked",
        b"Transfer-Encoding: gzip, chunked",
        b"Transfer-Encoding: chunked, chunked",
        b"Transfer-Encoding: chunked,",
        b"Transfer-Encoding: ,chunked",
        b"Transfer-Encoding: chunked;q=1",
        b'Transfer-Encoding: "chunked"',
        b"Transfer-Encoding: identity",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked",
        b"Transfer-Encoding : chunked",
        b"Transfer-Encoding\t: chunked",
        b"tRaNsFeR-EnCoDiNg: ChUnKeD",
        b"Transfer-Encoding:\r\n chunked",
        b"X: x\nTransfer-Encoding: chunked",
        b"X: x\rTransfer-Encoding: chunked",
    ]
    no_codings = [
        b" Transfer-Encoding: chunked",
        b"Transfer_Encoding: chunked",
        b"Transfer-Encoding:",
    ]
    alone = {f"{field!r} alone": request(field + b"\r\n") for field in fields}
    return alone | {
        repr(field): request(field + b"\r\n" + _length(len(behind)), behind)
        for field in fields + no_codings
    }


def _chunks() -> dict[str, bytes]:
    """Chunked bodies with sizes and ends that some parsers forgive."""
    size = b"%x" % len(HIDDEN)
    extension = b";a=" + b"x" * 20_000
    bodies = {
        "whole": _chunk(HIDDEN) + _LAST,
        "size 0x": b"0x%b\r\n%b\r\n" % (size, HIDDEN) + _LAST,
        "size 0x0": b"0x0\r\n\r\n" + HIDDEN,
        "size with plus": b"+%b\r\n%b\r\n" % (size, HIDDEN) + _LAST,
        "size of minus one": b"-1\r\n\r\n" + HIDDEN,
        "size of minus zero": b"-0\r\n\r\n" + HIDDEN,
        "space before the size": b" %b\r\n%b\r\n" % (size, HIDDEN) + _LAST,
        "space before zero": b" 0\r\n\r\n" + HIDDEN,
        "space after the size": b"%b \r\n%b\r\n" % (size, HIDDEN) + _LAST,
        "space before an extension": b"%b ;a\r\n%b\r\n" % (size, HIDDEN) + _LAST,
        "underscore in the size": b"0_0\r\n\r\n" + HIDDEN,
        "empty size": b"\r\n\r\n" + HIDDEN,
        "20 digits that wrap to zero": b"10000000000000000000\r\n\r\n" + HIDDEN,
        "17 digits that wrap to zero": b"10000000000000000\r\n\r\n" + HIDDEN,
        "21 digits": b"100000000000000000000\r\n\r\n" + HIDDEN,
        "leading zeros": b"0000000000%b\r\n%b\r\n" % (size, HIDDEN) + _LAST,
        "too many leading zeros": b"0" * 30 + b"%b\r\n%b\r\n" % (size, HIDDEN) + _LAST,
        "long extension": b"%b%b\r\n%b\r\n" % (size, extension, HIDDEN) + _LAST,
        "extension with LF": b"5;a\nxxxx\r\n" + _LAST + HIDDEN,
        "extension with CR": b"5;a\rxxxx\r\n" + _LAST + HIDDEN,
        "extension with the hidden request": b'5;a="\n\n' + HIDDEN + b'"\r\n' + HIDDEN,
        "extension of the last chunk with LF": b"0;\n\n" + HIDDEN,
        "size ended by LF": b"%b\n%b\r\n" % (size, HIDDEN) + _LAST,
        "size ended by CR": b"0\r\r" + HIDDEN,
        "no end after the data": b"5\r\nhello0\r\n\r\n" + HIDDEN,
        "LF after the data": b"5\r\nhello\n0\r\n\r\n" + HIDDEN,
        "two bytes that are no end": b"5\r\nhelloXX0\r\n\r\n" + HIDDEN,
        "size too small": b"2\r\nhello\r\n0\r\n\r\n" + HIDDEN,
        "NUL after the size": b"0\x00\r\n\r\n" + HIDDEN,
        "trailer with a length": b"%b0\r\nContent-Length: %d\r\nX: y"
        % (_chunk(HIDDEN), len(HIDDEN)),
        "ended trailer with a bad name": _chunk(BODY) + b"0\r\nX y: z\r\n\r\n" + HIDDEN,
        "ended trailer without a colon": _chunk(BODY) + b"0\r\nGET / HTTP/1.1\r\n\r\n" + HIDDEN,
        "trailer folded": _chunk(BODY) + b"0\r\n X: y\r\n\r\n" + HIDDEN,
    }
    return {name: request(_CHUNKED, body) for name, body in bodies.items()}


def _lengths() -> dict[str, bytes]:
    size = len(HIDDEN)
    values = {
        "plus": b"+%d" % size,
        "minus one": b"-1",
        "minus zero": b"-0",
        "equal in a list": b"%d, %d" % (size, size),
        "different in a list": b"0, %d" % size,
        "different in a list, zero last": b"%d, 0" % size,
        "5,000 digits": b"1" * 5000,
        "5,000 zeros": b"0" * 5000,
        "wraps to zero": b"18446744073709551616",
        "wraps to zero in 32 bits": b"4294967296",
        "space inside": b"1 0",
        "spaces around": b"  %d \t" % size,
        "empty": b"",
        "hexadecimal": b"0x%x" % size,
        "underscore": b"0_0",
        "fraction": b"0.0",
        "exponent": b"0e1",
        "comma": b"0,",
        "NUL": b"0\x00",
        "vertical tab": b"\x0b0",
        "other digits": b"\xd9\xa0",
    }
    fields = {name: _length(value) for name, value in values.items()}
    fields |= {
        "two equal": _length(size) * 2,
        "two different": _length(0) + _length(size),
        "two different, zero last": _length(size) + _length(0),
        "space before the colon": b"Content-Length : %d\r\n" % size,
        "underscore in the name": b"Content_Length: 0\r\n" + _length(size),
        "folded": b"Content-Length:\r\n %d\r\n" % size,
        "folded in two": b"Content-Length: 0\r\n %d\r\n" % size,
    }
    return {name: request(field) for name, field in fields.items()}


def _lines() -> dict[str, bytes]:
    """Line ends, folds and bytes that no header may hold."""
    size = _length(len(HIDDEN))
    return {
        "bare LF": request(size).replace(b"\r\n", b"\n", 5),
        "bare LF ends the head": _POST + _HOST + _TYPE + size + b"X: y\n\n" + HIDDEN,
        "bare LF in a value": request(b"X: y\nContent-Length: 0\r\n" + size),
        "bare CR": request(b"X: y\r\r" + size),
        "bare CR ends the head": _POST + _HOST + b"Content-Length: 0\r\r" + HIDDEN,
        "CR CR LF": request(size).replace(b"\r\n", b"\r\r\n", 4),
        "LF CR": _POST + _HOST + b"X: y\n\r\n\r" + HIDDEN,
        "NUL in a value": request(b"X: a\x00b\r\n" + size),
        "CR in a value": request(b"X: a\rb\r\n" + size),
        "NUL ends a value": request(b"X: a\x00\r\n" + size),
        "folded value": request(b"X: a\r\n b\r\n" + size),
        "folded length": request(b"X: a\r\n Content-Length: 0\r\n" + size),
        "folded coding": request(b"X: a\r\n\tTransfer-Encoding: chunked\r\n" + size),
        "first header folded": _POST + b" X: y\r\n" + _HOST + size + b"\r\n" + HIDDEN,
        "empty line before": b"\r\n" + request(size),
        "space in a name": request(b"X y: z\r\n" + size),
        "no name": request(b": z\r\n" + size),
        "no colon": request(b"Xyz\r\n" + size),
        "200 headers": request(b"".join(b"X-%d: y\r\n" % i for i in range(200)) + size),
        "head too long": request(b"X: " + b"y" * 70_000 + b"\r\n" + size),
    }


def _heads() -> dict[str, bytes]:
    """Methods, versions and targets."""
    size = _length(len(HIDDEN))
    old = b"POST /v1/classify HTTP/1.0\r\n"
    keep = b"Connection: keep-alive\r\n"
    versions = [b"HTTP/0.9", b"HTTP/1.2", b"HTTP/2.0", b"HTTP/1.10", b"HTTP/1", b"http/1.1", b""]
    return {
        "GET with a body": request(size, line=b"GET /v1/classify HTTP/1.1\r\n"),
        "HEAD with a body": request(size, line=b"HEAD /v1/classify HTTP/1.1\r\n"),
        "DELETE with a body": request(size, line=b"DELETE /v1/classify HTTP/1.1\r\n"),
        "GET with chunks": request(
            _CHUNKED, _chunk(HIDDEN) + _LAST, b"GET /v1/classify HTTP/1.1\r\n"
        ),
        "CONNECT": request(size, line=b"CONNECT /v1/classify HTTP/1.1\r\n"),
        "HTTP/0.9": b"GET /v1/classify\r\n" + HIDDEN,
        "HTTP/1.0 keep-alive": request(keep + size, line=old),
        "HTTP/1.0 keep-alive with TE": request(keep + _CHUNKED, _chunk(HIDDEN) + _LAST, old),
        "HTTP/1.0 keep-alive with TE, behind": request(keep + _CHUNKED, _LAST + HIDDEN, old),
        "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + HIDDEN,
        "absolute target": request(size, line=b"POST http://localhost/v1/classify HTTP/1.1\r\n"),
        "absolute target of the policy": request(
            size, line=b"POST http://localhost/v1/models/tiny/policy HTTP/1.1\r\n"
        ),
        "space in the target": request(size, line=b"POST /v1/classify /x HTTP/1.1\r\n"),
        "two spaces": request(size, line=b"POST  /v1/classify  HTTP/1.1\r\n"),
        "tab": request(size, line=b"POST\t/v1/classify\tHTTP/1.1\r\n"),
        "hidden in the target": b"GET /v1/classify?" + HIDDEN,
        "double Host": request(b"Host: other\r\n" + size),
        "no Host": _POST + _TYPE + size + b"\r\n" + HIDDEN,
        "close": request(b"Connection: close\r\n" + _length(len(BODY)), BODY + HIDDEN),
        **{
            f"version {version.decode()!r}": request(
                size, line=b"POST /v1/classify " + version + b"\r\n"
            )
            for version in versions
        },
    }


def _cut(shapes: list[Shape]) -> Iterator[Shape]:
    """Send shapes in three pieces, cut before the head's end and behind it."""
    for name, (data,), answers in shapes:
        end = max(data.find(b"\r\n\r\n"), 4)
        pieces = [data[: end - 3], data[end - 3 : end + 4], data[end + 4 :]]
        yield Shape(f"{name}, cut", pieces, answers)


def _pipelined() -> Iterator[Shape]:
    expecting = request(b"Expect: 100-continue\r\n" + _length(len(HIDDEN)))
    head = len(expecting) - len(HIDDEN)
    refused = expecting.replace(b"/v1/classify", b"/v1/nothing")
    yield Shape("expect: body sent at once", [expecting])
    yield Shape("expect: body sent later", [expecting[:head], expecting[head:]])
    yield Shape("expect: body withheld", [expecting[:head]])
    yield Shape("expect: another thing", [expecting.replace(b"100-continue", b"200-ok")])
    yield Shape(
        "expect: refused, body sent all the same", [refused[: head - 1], refused[head - 1 :]]
    )
    yield Shape("pipelined: two legal ones", [LEGAL * 2], 2)
    yield Shape("pipelined: two legal ones, cut", [LEGAL + LEGAL[:40], LEGAL[40:]], 2)
    behind = _LAST + HIDDEN
    two_framings = request(_length(len(behind)) + _CHUNKED, behind)
    yield Shape("pipelined: CL.TE behind a busy one", [LEGAL + two_framings], 2)
    bad_size = request(_CHUNKED, b"0x0\r\n\r\n" + HIDDEN)
    yield Shape("pipelined: a bad size behind a busy one", [LEGAL + bad_size], 2)
