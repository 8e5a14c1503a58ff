"""The head of a request, read as strictly as RFC 9112 allows.

What another program might read in another way is refused, so that a proxy and this server never
disagree on where a request ends. There is no second parser behind this one.
"""

import re
from typing import Final, NamedTuple

from serve.errors import BadRequest, HeadTooLarge, TargetTooLong

Header = tuple[bytes, bytes]

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]++"
# No folded lines, no space before the colon, no control characters. Of one or more lines, each
# ends with CR LF, and neither stands alone.
FIELDS: Final = rb"(?:" + _TOKEN + rb":[\t -~\x80-\xff]*+\r\n)*+"
_HEAD = re.compile(rb"(" + _TOKEN + rb") ([!-~]++) HTTP/1\.([01])\r\n(" + FIELDS + rb")\r\n")
_NO_BEGINNING = re.compile(rb"[^!-~]")
# The line feed first: a search for what is in front of it would stop at every byte of a head.
_BARE_LINE_FEED = re.compile(rb"\n(?<!\r\n)")
# They decide where the request ends, and whom it is for.
_SINGLE: Final = (b"host", b"content-length", b"transfer-encoding")
# RFC 9112, section 3.2.2. User names in front of the host are refused, as is a target of no host.
_ABSOLUTE = re.compile(rb"([Hh][Tt][Tt][Pp][Ss]?)://([^/?#@\\]++)(/[!-~]*+|\?[!-~]*+|)")
# Elements of a list, between commas and spaces. The word first, for the reason above.
_CLOSE = re.compile(rb"close(?<![^, \t]close)(?![^, \t])")
_CONTINUE = re.compile(rb"100-continue(?<![^, \t]100-continue)(?![^, \t])")
# What reads a target or the headers takes time by their size and number, also without a key.
MAX_TARGET_BYTES: Final = 8192
MAX_HEADERS: Final = 256
# Fewer than 2 ** 63 bytes: the same number to programs that count in 64 bits.
_MAX_LENGTH_DIGITS = 18


class Head(NamedTuple):
    """The request line and the headers.

    Attributes:
        method: the method as it was sent.
        target: path and query; `*` for OPTIONS.
        http_version: `1.0` or `1.1`.
        headers: names in lower case, values without the space around them. Where the request line
            names a host, that is the one of the Host header.
        num_body_bytes: None for a body in chunks.
        keep_alive: whether another request may follow.
        expects_continue: whether the client waits for `100 Continue`.
    """

    method: str
    target: bytes
    http_version: str
    headers: list[Header]
    num_body_bytes: int | None
    keep_alive: bool
    expects_continue: bool


def malformed(what: str) -> BadRequest:
    """Return the error for a request that is no good HTTP."""
    return BadRequest(f"the request is not well-formed HTTP/1.1: {what}")


def check_beginning(received: bytearray, checked: int) -> None:
    """Check a head that is not complete.

    Args:
        received: what has come of the head.
        checked: so many bytes were checked before.

    Raises:
        BadRequest: nothing that might follow makes it a head.
    """
    begun_wrong = not checked and _NO_BEGINNING.match(received)
    if begun_wrong or _BARE_LINE_FEED.search(received, checked):
        raise malformed("check the request line, and that each line ends with CR LF")


def read_head(raw: bytes, scheme: str = "http") -> Head:
    """Return a head.

    Args:
        raw: with the empty line at its end.
        scheme: the connection's scheme.

    Raises:
        BadRequest: it is malformed, or does not tell for certain where the body ends.
        TargetTooLong: its target has more than `MAX_TARGET_BYTES`.
        HeadTooLarge: there are more than `MAX_HEADERS` headers.
    """
    match = _HEAD.fullmatch(raw)
    if match is None:
        raise malformed("check the request line and the headers")
    method, target, minor, lines = match.groups()
    _check_size(target, lines)
    headers: list[Header] = []
    for line in lines.splitlines():
        name, _, value = line.partition(b":")
        headers.append((name.lower(), value.strip(b" \t")))
    found = dict(headers)
    if len(found) < len(headers):
        _check_repeated(headers)
    is_1_1 = minor == b"1"
    if is_1_1 and b"host" not in found:
        raise malformed("there is no Host header")
    if not target.startswith(b"/"):
        target = _origin_form(method, target, headers, scheme)
    return Head(
        method.decode(),
        target,
        "1.1" if is_1_1 else "1.0",
        headers,
        _num_body_bytes(found, is_1_1),
        is_1_1 and not (b"connection" in found and _lists(headers, b"connection", _CLOSE)),
        is_1_1 and b"expect" in found and _lists(headers, b"expect", _CONTINUE),
    )


def _check_size(target: bytes, lines: bytes) -> None:
    if len(target) > MAX_TARGET_BYTES:
        raise TargetTooLong(f"the target is longer than {MAX_TARGET_BYTES} bytes; send less")
    if lines.count(b"\n") > MAX_HEADERS:
        raise HeadTooLarge(f"there are more than {MAX_HEADERS} headers; send fewer")


def _origin_form(method: bytes, target: bytes, headers: list[Header], scheme: str) -> bytes:
    """Return path and query of a target that is a whole URL; its host replaces the Host header."""
    if target == b"*" and method == b"OPTIONS":
        return target
    match = _ABSOLUTE.fullmatch(target)
    if match is None:
        raise malformed("the target is no path, such as /v1/classify, and no URL with a host")
    given, authority, rest = match.groups()
    if given.lower().decode() != scheme:
        raise malformed(f"the target is no {scheme} URL, and this connection speaks {scheme}")
    headers[:] = [(b"host", authority), *(h for h in headers if h[0] != b"host")]
    return rest if rest.startswith(b"/") else b"/" + rest


def _check_repeated(headers: list[Header]) -> None:
    names = [name for name, _ in headers]
    for name in _SINGLE:
        if names.count(name) > 1:
            raise malformed(f"there are several {name.decode()} headers")


def _num_body_bytes(found: dict[bytes, bytes], is_1_1: bool) -> int | None:
    length, coding = found.get(b"content-length"), found.get(b"transfer-encoding")
    if coding is None:
        if length is None:
            return 0
        if not length.isdigit() or len(length) > _MAX_LENGTH_DIGITS:
            raise malformed("Content-Length is no usable number")
        return int(length)
    if length is not None:
        raise malformed("Content-Length and Transfer-Encoding exclude each other")
    if coding.lower() != b"chunked" or not is_1_1:
        raise malformed("the only Transfer-Encoding is chunked, of HTTP/1.1")
    return None


def _lists(headers: list[Header], wanted: bytes, element: re.Pattern[bytes]) -> bool:
    """Tell whether one of the headers with this name, which is a list, has an element."""
    values = [value.lower() for name, value in headers if name == wanted and value != b"keep-alive"]
    return any(element.search(value) for value in values)
