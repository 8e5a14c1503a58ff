import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve.errors import BadRequest, HeadTooLarge
from serve.http.body import MAX_CHUNKS_AT_ONCE, MAX_SMALL_CHUNKS, Body, ChunkedBody, SizedBody

BEHIND = b"GET /"
CHUNKS = b'5\r\nhello\r\n006;a="b;c"\r\n\r\n0\r\n\x00\r\n1;\r\n!\r\n0;x\r\nX: y\r\nHost: z\r\n\r\n'
CONTENT = b"hello\r\n0\r\n\x00!"


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


@given(cuts=st.sets(st.integers(0, len(CHUNKS + BEHIND)), max_size=6))
def test_chunks_are_the_same_wherever_they_are_cut(cuts: set[int]) -> None:
    sent = CHUNKS + BEHIND
    ends = [*sorted(cuts), len(sent)]
    pieces = [sent[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]
    body = ChunkedBody(100)
    assert taken(body, pieces) == (CONTENT, BEHIND)
    assert body.ended


def test_sized_body_takes_its_bytes_and_no_more() -> None:
    assert taken(SizedBody(5), [b"he", b"llo" + BEHIND]) == (b"hello", BEHIND)
    assert SizedBody(0).ended


@pytest.mark.parametrize(
    "sent",
    [
        first + b"\r\nhello\r\n0\r\n\r\n"
        for first in (b"", b"x", b"0x5", b"+5", b"-5", b" 5", b"5 ", b"5 ;a", b"5_0", b"5,5")
    ]
    + [b"5;a" + bytes([byte]) + b"b\r\nhello\r\n0\r\n\r\n" for byte in {*range(32), 127} - {9}]
    + [
        b"5\r\nhello" + end + b"0\r\n\r\n"
        for end in (b"", b"\n", b"\r", b"XX", b"\r\n\r\n", b"!\r\n")
    ]
    + [
        b"0" * 15 + b"5\r\nhello\r\n0\r\n\r\n",
        b"0\r\n" + b" X: y\r\n\r\n",
        b"0\r\n" + b"X : y\r\n\r\n",
        b"0\r\n" + b"X: y\n\r\n\r\n",
        b"0\r\n" + b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_chunks_that_another_server_may_read_in_another_way_are_refused(sent: bytes) -> None:
    with pytest.raises(BadRequest):
        taken(ChunkedBody(100), [sent])
    with pytest.raises(BadRequest):
        taken(ChunkedBody(100), [bytes([byte]) for byte in sent])


@pytest.mark.parametrize(
    "sent",
    [
        b"1;" + b"a" * 50 + b"\r\nx\r\n1;" + b"a" * 50 + b"\r\n",
        b"1;" + b"a" * 200,
        b"0\r\n" + b"X: y\r\n" * 20,
        b"0\r\n" + b"X: y\r\n" * 20 + b"\r\n",
        b"0" * 200,
    ],
)
def test_extensions_and_trailers_have_a_bound_together(sent: bytes) -> None:
    with pytest.raises(HeadTooLarge):
        taken(ChunkedBody(100), [bytes([byte]) for byte in sent])
    with pytest.raises(HeadTooLarge):
        taken(ChunkedBody(100), [sent])


def test_a_body_may_not_come_in_any_number_of_small_chunks() -> None:
    few = b"1\r\nx\r\n" * MAX_SMALL_CHUNKS
    assert taken(ChunkedBody(100), [few])[0] == b"x" * MAX_SMALL_CHUNKS
    with pytest.raises(BadRequest, match="send chunks of 64 bytes or more"):
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
