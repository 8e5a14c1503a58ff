"""A request to change the policy, and requests to hide it in."""

POLICY = "/v1/models/tiny/policy"
HIDDEN_ID = b"hidden-request"
_POLICY_BODY = b'{"policy": {"default": {"rule": "never"}}, "version": null}'
HIDDEN = b"".join(
    [
        b"PUT /v1/models/tiny/policy HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: " + HIDDEN_ID,
        b"\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(_POLICY_BODY),
        _POLICY_BODY,
    ]
)
# A whole legal request, for the shapes that put something behind or in front of one.
BODY = b'{"inputs": "a"}'
POST = b"POST /v1/classify HTTP/1.1\r\n"
HOST = b"Host: localhost\r\n"
TYPE = b"Content-Type: application/json\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
LAST = b"0\r\n\r\n"
UPGRADE = b"Connection: Upgrade\r\nUpgrade: foo\r\n"


def length(value: bytes | int) -> bytes:
    return b"Content-Length: %b\r\n" % (b"%d" % value if isinstance(value, int) else value)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def request(headers: bytes, body: bytes = HIDDEN, line: bytes = POST) -> bytes:
    """Return a request to classify whose framing is up to the headers."""
    return line + HOST + TYPE + headers + b"\r\n" + body


LEGAL = request(length(len(BODY)), BODY)
