"""The bytes of an answer: its head, and whole answers for errors."""

import re
from collections.abc import Collection
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from time import time
from typing import Final

from serve.api.errors import error_response
from serve.api.record import new_request_id
from serve.errors import OfframpError
from serve.http.head import FIELDS, Header

CLOSE: Final = b"connection: close\r\n"
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_PHRASES = {status.value: status.phrase for status in HTTPStatus}
_STATUS_LINES: Final = {
    code: f"HTTP/1.1 {code} {_PHRASES.get(code, '')}\r\n".encode() for code in range(200, 600)
}
_FIELDS = re.compile(FIELDS)


def answer_head(status: int, headers: Collection[Header], more: bytes = b"") -> bytes:
    """Return the head of an answer.

    Args:
        status: from 200 to 599.
        headers: of the app.
        more: lines of further headers.

    Raises:
        ValueError: a header has bytes that would make it another one for the client.
    """
    lines = b"".join([b"%b: %b\r\n" % (name, value) for name, value in headers])
    if lines.count(b"\n") != len(headers) or not _FIELDS.fullmatch(lines):
        raise ValueError("a header of the answer is malformed")
    return b"".join((_STATUS_LINES[status], _date(int(time())), lines, more, b"\r\n"))


def error_answer(error: OfframpError, method: str = "") -> bytes:
    """Return a whole answer that closes its connection.

    Args:
        error: what is wrong.
        method: of the request, if it is known; the answer to HEAD has no body.
    """
    response = error_response(error)
    request_id = (b"x-request-id", new_request_id().encode())
    head = answer_head(response.status_code, [*response.raw_headers, request_id], CLOSE)
    return head if method == "HEAD" else head + bytes(response.body)


@lru_cache(1)
def _date(second: int) -> bytes:
    return f"date: {formatdate(second, usegmt=True)}\r\n".encode()
