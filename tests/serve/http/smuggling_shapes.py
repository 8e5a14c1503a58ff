"""Requests that two HTTP parsers may read in two ways, each with a whole other one hidden inside.

The hidden request is where RFC 9112 says it is none: in a body, in a chunk's extension, or behind
a head that has to be refused. A parser that reads the outer request another way would run it.
"""

from collections.abc import Iterator
from typing import NamedTuple

from tests.serve.http.hidden_request import CHUNKED, HIDDEN, LAST, LEGAL, UPGRADE, length, request
from tests.serve.http.smuggling_bodies import chunks, lengths, transfer_codings, two_framings
from tests.serve.http.smuggling_heads import heads, lines

# Whole requests without a body, and behind them bytes that begin none.
_BYTES_BEHIND = {"line: LF CR", "head: HTTP/2 preface"}


class Shape(NamedTuple):
    """What a client sends, piece by piece."""

    name: str
    pieces: list[bytes]
    # Requests that the client framed legally, at most; and bytes behind them that are refused.
    max_answers: int = 1


def all_shapes() -> list[Shape]:
    """Return every shape; the names are all different."""
    whole = [
        *_named("framing", two_framings()),
        *_named("coding", transfer_codings()),
        *_named("chunk", chunks()),
        *_named("length", lengths()),
        *_named("line", lines()),
        *_named("head", heads()),
    ]
    return [*_upgrades(), *whole, *_cut(whole), *_pipelined()]


def _named(kind: str, sent: dict[str, bytes]) -> list[Shape]:
    names = {f"{kind}: {name}": data for name, data in sent.items()}
    return [Shape(name, [data], 1 + (name in _BYTES_BEHIND)) for name, data in names.items()]


def _upgrades() -> Iterator[Shape]:
    """A parser that changes at an upgrade loses count of the body: the body comes by itself."""
    head = request(UPGRADE + length(len(HIDDEN)), b"")
    start = head.index(UPGRADE)
    for at in sorted({*range(1, len(head), 7), *range(start, start + len(UPGRADE) + 1)}):
        yield Shape(f"upgrade: cut at {at}", [head[:at], head[at:], HIDDEN])
        yield Shape(f"upgrade: cut at {at}, body at once", [head[:at], head[at:] + HIDDEN])
        yield Shape(f"upgrade: busy, cut at {at}", [LEGAL + head[:at], head[at:], HIDDEN], 2)
    # A proxy writes a long body by itself.
    long = HIDDEN + b" " * 100_000
    long_head = request(UPGRADE + length(len(long)), b"")
    yield Shape("upgrade: long body", [long_head + long])
    yield Shape("upgrade: long body by itself", [long_head, long])
    yield Shape("upgrade: long body in two", [long_head + long[:50_000], long[50_000:]])
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
        other = request(headers + length(len(HIDDEN)), b"")
        yield Shape(f"upgrade: to {protocol.decode()}", [other[:70], other[70:], HIDDEN])


def _cut(shapes: list[Shape]) -> Iterator[Shape]:
    """Send shapes in three pieces, cut before the head's end and behind it."""
    for name, (data,), answers in shapes:
        end = max(data.find(b"\r\n\r\n"), 4)
        pieces = [data[: end - 3], data[end - 3 : end + 4], data[end + 4 :]]
        yield Shape(f"{name}, cut", pieces, answers)


def _pipelined() -> Iterator[Shape]:
    expecting = request(b"Expect: 100-continue\r\n" + length(len(HIDDEN)))
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
    behind = LAST + HIDDEN
    both = request(length(len(behind)) + CHUNKED, behind)
    yield Shape("framing: CL.TE, every byte by itself", [bytes([byte]) for byte in both])
    yield Shape("pipelined: CL.TE behind a busy one", [LEGAL + both], 2)
    bad_size = request(CHUNKED, b"0x0\r\n\r\n" + HIDDEN)
    yield Shape("chunk: size 0x0, every byte by itself", [bytes([byte]) for byte in bad_size])
    yield Shape("pipelined: a bad size behind a busy one", [LEGAL + bad_size], 2)
