"""Compressed bodies: those of requests within a bound, those of answers where that is worth it."""

import zlib
from collections.abc import Callable
from typing import Final

from serve.errors import BodyTooLarge, MalformedBody, UnsupportedMediaType

# Window sizes by which zlib tells its own format, which HTTP calls deflate, from gzip's.
_WINDOW_BITS: Final = {"gzip": 31, "deflate": 15}
IDENTITY = "identity"

# One byte stands for so many at most.
_MOST_RATIO: Final = 1032

# Shorter answers fit a packet as they are.
MIN_BYTES: Final = 1024
# More effort gains a few percent in size and takes three times as long.
_LEVEL = 1


def unpack(
    body: bytes, encoding: str, max_bytes: int, count: Callable[[int], object] = int
) -> bytes:
    """Return a body without its Content-Encoding; at most one more than `max_bytes` are unpacked.

    `count` is called with the bytes that were unpacked, or may have been, whatever comes of them.

    Raises:
        UnsupportedMediaType: the encoding is unknown.
        BodyTooLarge: the body is larger than `max_bytes`.
        MalformedBody: the body is not what the encoding says.
    """
    encoding = encoding.strip().lower()
    if encoding == IDENTITY:
        return body
    if encoding not in _WINDOW_BITS:
        raise UnsupportedMediaType(
            "send the body as it is, or with the Content-Encoding gzip or deflate"
        )
    unpacker = zlib.decompressobj(_WINDOW_BITS[encoding])
    try:
        unpacked = unpacker.decompress(body, max_bytes + 1)
    except zlib.error:
        count(min(len(body) * _MOST_RATIO, max_bytes))
        raise MalformedBody(f"the body is not {encoding}, as its Content-Encoding says") from None
    count(len(unpacked))
    if len(unpacked) > max_bytes:
        raise BodyTooLarge(f"the body is larger than {max_bytes} bytes when unpacked; send less")
    if not unpacker.eof or unpacker.unused_data:
        found = "bytes after its end" if unpacker.eof else "no end"
        raise MalformedBody(f"the body has {found} as {encoding}")
    return unpacked


def choose_encoding(accepted: str, num_bytes: int) -> str:
    """Return how to compress an answer by the request's Accept-Encoding; `identity` for not."""
    if num_bytes < MIN_BYTES:
        return IDENTITY
    names = [part.strip().lower() for part in accepted.split(",")]
    return next((name for name in names if name in _WINDOW_BITS), IDENTITY)


def pack(body: bytes, encoding: str) -> bytes:
    """Return a body in an encoding that `choose_encoding` has chosen."""
    if encoding == IDENTITY:
        return body
    packer = zlib.compressobj(_LEVEL, wbits=_WINDOW_BITS[encoding])
    return packer.compress(body) + packer.flush()
