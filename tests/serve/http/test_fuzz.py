"""Any bytes at all: answered or refused, and read as another strict reader reads them."""

import asyncio
import re
from collections.abc import Collection, Iterator
from itertools import pairwise, product
from typing import NamedTuple

import h11
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from tests.serve.http.talk import Talk

# Of `make test`; a soak makes more.
NUM_EXAMPLES = 300
HOST = b"Host: localhost"
LEGAL = [
    b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"POST /a?b=c HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello",
    b"POST /a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    b'5\r\nhello\r\n006;a="b;c"\r\n\r\n0\r\n\x00\r\n1;\r\n!\r\n0;x\r\nX: y\r\nHost: z\r\n\r\n',
    b"PUT http://localhost/x HTTP/1.1\r\nHost: other\r\nExpect: 100-continue\r\n"
    b"Content-Length: 2\r\n\r\nok",
    b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n"
    b"Content-Length: 1\r\n\r\n!",
    b"GET / HTTP/1.0\r\n\r\n",
]
METHODS = [b"GET", b"POST", b"PUT", b"HEAD", b"OPTIONS", b"CONNECT", b"get", b"PRI", b"G:T", b""]
TARGETS = [b"/", b"/a?b=%ff", b"http://evil/x", b"http://u@evil/", b"//x", b"*", b"x", b"/\xe9"]
VERSIONS = [*[b"HTTP/1.1"] * 12, b"HTTP/1.0", b"HTTP/0.9", b"HTTP/2.0", b"HTTP/1.10", b"http/1.1"]
# Headers that say, or nearly say, where a request ends.
FRAMINGS = [
    b"Content-Length: 5",
    b"Content-Length: 20",
    b"Content-Length: +5",
    b"Content-Length: 5, 5",
    b"Content-Length : 5",
    b"Content-Length: " + b"9" * 5000,
    b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: gzip, chunked",
    b"Transfer-Encoding: xchunked",
    b"Transfer-Encoding:\x0bchunked",
]
HEADERS = [
    HOST,
    *FRAMINGS,
    b"Expect: 100-continue",
    b"Connection: close",
    b"Connection: keep-alive, Upgrade",
    b"Upgrade: websocket",
    b"X: \xff",
    b"X: a\rb",
    b" folded",
    b": nameless",
    b"no colon",
]
ENDS = [*[b"\r\n"] * 20, b"\n", b"\r", b"\r\n\r\n", b"\x00"]
BODIES = [
    b"",
    b"hello",
    b"5\r\nhello\r\n0\r\n\r\n",
    b"0x5\r\nhello\r\n0\r\n\r\n",
    b"5\nhello\n0\n\n",
    b"5 \r\nhello\r\n0\r\n\r\n",
    b"5\r\nhelloXX0\r\n\r\n",
    b"0\r\n folded\r\n\r\n",
    b"ffffffffffffffff\r\n",
]
NOISE = st.binary(max_size=12)


def mostly(values: list[bytes]) -> st.SearchStrategy[bytes]:
    # Noise in one part of twelve, as several of them make a request.
    return st.integers(1, 12).flatmap(lambda n: NOISE if n == 12 else st.sampled_from(values))


@st.composite
def made_up(draw: st.DrawFn) -> bytes:
    first = b" ".join(map(draw, (mostly(METHODS), mostly(TARGETS), mostly(VERSIONS))))
    lines = [first, *draw(st.lists(mostly(HEADERS), max_size=4)), HOST]
    head = b"".join(line + draw(st.sampled_from(ENDS)) for line in lines)
    return head + b"\r\n" + draw(mostly(BODIES))


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    request = draw(st.sampled_from(LEGAL))
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(request)))
        request = request[:place] + draw(NOISE) + request[place + draw(st.integers(0, 8)) :]
    return request


STREAMS = st.lists(
    st.one_of(st.sampled_from(LEGAL), made_up(), damaged()),
    min_size=1,
    max_size=3,
).map(b"".join)


class Seen(NamedTuple):
    """A request as it was read."""

    method: bytes
    target: bytes
    body: bytes


class Told(NamedTuple):
    """What became of a stream: requests, statuses of answers, whether the connection has ended."""

    seen: list[Seen]
    statuses: list[int]
    closed: bool


def told(stream: bytes, cuts: Collection[int] = ()) -> Told:
    """Return what becomes of a stream that is cut into pieces."""
    ends = [0, *sorted(cut for cut in cuts if cut < len(stream)), len(stream)]
    pieces = [stream[begin:end] for begin, end in pairwise(ends)]
    return asyncio.run(_talk(pieces))


async def _talk(pieces: list[bytes]) -> Told:
    seen = list[Seen]()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body = await Request(scope, receive).body()
        except ClientDisconnect:
            return
        # Of both, some readers heed the one and some the other.
        names = [name for name, _ in scope["headers"]]
        assert not {b"content-length", b"transfer-encoding"} <= {*names}
        query = b"?" + scope["query_string"] if scope["query_string"] else b""
        seen.append(Seen(scope["method"].encode(), scope["raw_path"] + query, body))
        await PlainTextResponse("ok")(scope, receive, send)

    there = Talk(app)
    answers = await there.send(*pieces)
    statuses = [int(status) for status in re.findall(rb"HTTP/1\.1 ([2-5]\d\d) ", answers)]
    closed = there.transport.closed
    for now_s in (0.0, 1e6):  # a client that sends no more
        there.connection.sweep(now_s)
    assert there.transport.closed or there.transport.aborted
    there.connection.connection_lost(None)
    await there.send()
    assert not there.running
    return Told(seen, statuses, closed)


def read_by_h11(stream: bytes) -> Iterator[Seen]:
    """Yield the requests of a stream as h11 reads them, up to one that it refuses."""
    reader = h11.Connection(h11.SERVER, max_incomplete_event_size=2**16)
    reader.receive_data(stream)
    head, body = h11.Request, b""
    while True:
        try:
            event = reader.next_event()
        except h11.RemoteProtocolError:
            return
        if isinstance(event, h11.Request):
            head, body = event, b""
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage):
            yield Seen(head.method, _path_of(head.target), body)
            reader.send(h11.Response(status_code=400, headers=[("content-length", "0")]))
            reader.send(h11.EndOfMessage())
            if reader.our_state is not h11.DONE:
                return
            reader.start_next_cycle()
        else:
            return


def _path_of(target: bytes) -> bytes:
    """Return the path of a target, which may be a whole URL, with its query."""
    found = re.fullmatch(rb"(?i:https?://[^/?]*)(.*)", target)
    if not found:
        return target.removesuffix(b"?")
    return (found[1] if found[1].startswith(b"/") else b"/" + found[1]).removesuffix(b"?")


NUMBER = max(NUM_EXAMPLES, settings.default.max_examples)
# A short run makes the same streams every time.
many = settings(max_examples=NUMBER, derandomize=NUMBER == NUM_EXAMPLES, database=None)


def check(stream: bytes) -> None:
    """Check that a stream is read as h11 reads it, or refused, and that all of it is answered."""
    read = [*read_by_h11(stream)]
    seen, statuses, closed = told(stream)
    assert seen == read[: len(seen)]
    assert closed or len(seen) == len(read)
    answered, refused = statuses[: len(seen)], statuses[len(seen) :]
    assert answered == [200] * len(seen)
    assert refused in ([], [400], [414], [431])


@many
@given(stream=STREAMS)
def test_no_request_is_read_that_another_reader_reads_differently(stream: bytes) -> None:
    check(stream)


@pytest.mark.parametrize("first", FRAMINGS, ids=lambda line: line[:30].decode())
def test_every_two_framings_with_every_body(first: bytes) -> None:
    for second, body in product([None, *FRAMINGS], BODIES):
        lines = [b"POST / HTTP/1.1", HOST, first, *([second] if second else []), b"", body]
        check(b"\r\n".join(lines))


@many
@given(stream=STREAMS, cuts=st.sets(st.integers(1, 400), max_size=6))
def test_a_stream_is_the_same_wherever_it_is_cut(stream: bytes, cuts: set[int]) -> None:
    assert told(stream, cuts) == told(stream)


@pytest.mark.parametrize("stream", LEGAL)
def test_legal_requests_are_read(stream: bytes) -> None:
    [request] = read_by_h11(stream)
    assert told(stream)[:2] == ([request], [200])
    assert told(stream, {*range(len(stream))}) == told(stream)
