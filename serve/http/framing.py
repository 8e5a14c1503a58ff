"""The body of a request, taken from the bytes that follow its head."""

import re
from typing import Final, Protocol

from serve.errors import BadRequest, HeadTooLarge
from serve.http.head import FIELDS, Head, malformed

# At most 15 digits: fewer than 2 ** 63 bytes. RFC 9112, section 7.1, has no space in this line.
_SIZE = rb"(?P<size>[0-9A-Fa-f]{1,15}+)(?P<dropped>(?:;[\t -~\x80-\xff]*+)?+)\r\n"
_FIRST, _NEXT = re.compile(_SIZE), re.compile(rb"\r\n" + _SIZE)
_TRAILERS = re.compile(rb"(?P<dropped>" + FIELDS + rb")\r\n")
_MAX_SIZE_BYTES: Final = len(b"\r\n123456789abcdef\r\n")
# This many chunks may be of any size. Beyond them, chunks must have 64 bytes on average: a
# body of 2 MiB in chunks of one byte would take seconds.
MAX_SMALL_CHUNKS: Final = 8192
_MIN_CHUNK_BYTES: Final = 64
# Chunks that are taken at a time, in about 1 ms.
MAX_CHUNKS_AT_ONCE: Final = 512


class Body(Protocol):
    """A body that arrives.

    Attributes:
        ended: whether nothing of it is still to come.
        behind: whether more of what was received may belong to it.
    """

    ended: bool
    behind: bool

    def take(self, received: bytearray) -> bytearray:
        """Take what belongs to the body out of what was received; return its content."""


class SizedBody:
    """A body whose size was declared."""

    behind = False

    def __init__(self, num_bytes: int) -> None:
        self._left = num_bytes
        self.ended = not num_bytes

    def take(self, received: bytearray) -> bytearray:
        content = received[: self._left]
        del received[: self._left]
        self._left -= len(content)
        self.ended = not self._left
        return content


class ChunkedBody:
    """A body in chunks. Their extensions and the trailers are checked and dropped."""

    def __init__(self, max_dropped_bytes: int) -> None:
        """Take the most bytes that extensions and trailers may have together."""
        self.ended = self.behind = False
        self._left = 0  # of the content of a chunk
        self._expected = _FIRST  # what must follow the content of this chunk
        self._num_chunks = self._num_bytes = 0
        self._max_bytes = self._may_drop = max_dropped_bytes

    def take(self, received: bytearray) -> bytearray:
        """Take what belongs to the body, up to `MAX_CHUNKS_AT_ONCE`; return its content.

        Raises:
            BadRequest: the chunks are malformed.
            HeadTooLarge: there is too much around the content.
        """
        content, at = bytearray(), 0
        most = self._num_chunks + MAX_CHUNKS_AT_ONCE
        while not (self.ended or self._num_chunks >= most):
            part = received[at : at + self._left]
            content += part
            at += len(part)
            self._left -= len(part)
            if self._left:
                break
            match = self._match(received, at)
            if match is None:
                break
            at = match.end()
            self._expect_next(match)
        self.behind = not self.ended and self._num_chunks >= most
        del received[:at]
        return content

    def _match(self, received: bytearray, at: int) -> re.Match[bytes] | None:
        """Return what is expected, or None while its end is to come."""
        has_trailers = self._expected is _TRAILERS and not received.startswith(b"\r\n", at)
        end = b"\r\n\r\n" if has_trailers else b"\r\n"
        if received.find(end, at + 2 * (self._expected is _NEXT)) < 0:
            if len(received) - at > self._may_drop + _MAX_SIZE_BYTES:
                self._drop(len(received) - at)
            return None
        match = self._expected.match(received, at)
        if match is None:
            raise malformed("check the chunks of the body")
        return match

    def _expect_next(self, match: re.Match[bytes]) -> None:
        self._drop(len(match["dropped"]))
        if self._expected is _TRAILERS:
            self.ended = True
        else:
            self._left = int(match["size"], 16)
            self._count(self._left)
            self._expected = _NEXT if self._left else _TRAILERS

    def _count(self, num_bytes: int) -> None:
        self._num_chunks += 1
        self._num_bytes += num_bytes
        if self._num_chunks > MAX_SMALL_CHUNKS + self._num_bytes // _MIN_CHUNK_BYTES:
            raise BadRequest(
                f"the body comes in more than {MAX_SMALL_CHUNKS} small chunks; send chunks of "
                f"{_MIN_CHUNK_BYTES} bytes or more"
            )

    def _drop(self, num_bytes: int) -> None:
        self._may_drop -= num_bytes
        if self._may_drop < 0:
            raise HeadTooLarge(
                f"the chunk extensions and trailers are larger than {self._max_bytes} bytes"
            )


def body_of(head: Head, max_dropped_bytes: int) -> Body:
    """Return the body that a head announces, with most bytes of extensions and trailers."""
    if head.num_body_bytes is None:
        return ChunkedBody(max_dropped_bytes)
    return SizedBody(head.num_body_bytes)
