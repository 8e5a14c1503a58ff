"""The bytes of an answer: its head, and whole answers for errors."""

import re
from collections.abc import Callable, Collection
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from time import time
from typing import Final

from serve.errors import OfframpError
from serve.http.head import FIELDS, Header

CLOSE: Final = b"connection: close\r\n"
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_PHRASES = {status.value: status.phrase for status in HTTPStatus}
_STATUS_LINES: Final = {
    code: f"HTTP/1.1 {code} {_PHRASES.get(code, '')}\r\n".encode() for code in range(200, 600)
}
_FIELDS = re.compile(FIELDS)

# From an error to the headers and the body of its answer.
DescribeError = Callable[[OfframpError], tuple[list[Header], bytes]]


def in_plain_text(error: OfframpError) -> tuple[list[Header], bytes]:
    """Describe an error by its message."""
    return [(b"content-type", b"text/plain; charset=utf-8")], str(error).encode()


def answer_head(status: int, headers: Collection[Header], more: bytes = b"") -> bytes:
    """Return the head of an answer.

    Args:
        status: status from 200 to 599.
        headers: the app's headers.
        more: lines of further headers.

    Raises:
        ValueError: a header has bytes that would make it another one for the client.
    """
    lines = b"".join([b"%b: %b\r\n" % (name, value) for name, value in headers])
    if lines.count(b"\n") != len(headers) or not _FIELDS.fullmatch(lines):
        raise ValueError("a header of the answer is malformed")
    return b"".join((_STATUS_LINES[status], _date(int(time())), lines, more, b"\r\n"))


@lru_cache(1)
def _date(second: int) -> bytes:
    return f"date: {formatdate(second, usegmt=True)}\r\n".encode()
