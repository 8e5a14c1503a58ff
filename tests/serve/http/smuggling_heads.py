"""Heads that two parsers may read in two ways: lines, names, methods, versions and targets."""

from tests.serve.http.hidden_request import (
    BODY,
    CHUNKED,
    HIDDEN,
    HOST,
    LAST,
    POST,
    TYPE,
    chunk,
    length,
    request,
)

# Of the path that proxies publish and of the policy's, by other ways of naming the host.
_ABSOLUTE = [
    start + path
    for start in (
        b"http://user@localhost",
        b"http://user:pass@localhost",
        b"http://localhost@other",
        b"http://other",
        b"http://",
        b"http:",
        b"http:///",
        b"http://localhost\\",
        b"http://localhost#",
        b"http://localhost?",
        b"http://localhost/?",
        b"HTTP://LOCALHOST:80",
        b"https://localhost",
        b"ftp://localhost",
        b"//localhost",
        b"localhost",
        b"",
    )
    for path in (b"/v1/classify", b"/v1/models/tiny/policy", b"v1/classify")
    if start + path != b"/v1/classify"
]


def lines() -> dict[str, bytes]:
    """Line ends, folds and bytes that no header may hold."""
    size = length(len(HIDDEN))
    return {
        "bare LF": request(size).replace(b"\r\n", b"\n", 5),
        "bare LF ends the head": POST + HOST + TYPE + size + b"X: y\n\n" + HIDDEN,
        "bare LF in a value": request(b"X: y\nContent-Length: 0\r\n" + size),
        "bare CR": request(b"X: y\r\r" + size),
        "bare CR ends the head": POST + HOST + b"Content-Length: 0\r\r" + HIDDEN,
        "CR CR LF": request(size).replace(b"\r\n", b"\r\r\n", 4),
        "LF CR": POST + HOST + b"X: y\n\r\n\r" + HIDDEN,
        "NUL in a value": request(b"X: a\x00b\r\n" + size),
        "CR in a value": request(b"X: a\rb\r\n" + size),
        "NUL ends a value": request(b"X: a\x00\r\n" + size),
        "DEL in a value": request(b"X: a\x7fb\r\n" + size),
        "vertical tab folds": request(b"X: a\r\n\x0bContent-Length: 0\r\n" + size),
        "NUL in a name": request(b"X\x00: a\r\n" + size),
        "obs-text in a name": request(b"X\xe9: a\r\n" + size),
        "empty line of LF before": b"\n" + request(size),
        "CR behind the request line": request(size, line=POST[:-2] + b"\r\r\n"),
        "folded value": request(b"X: a\r\n b\r\n" + size),
        "folded length": request(b"X: a\r\n Content-Length: 0\r\n" + size),
        "folded coding": request(b"X: a\r\n\tTransfer-Encoding: chunked\r\n" + size),
        "first header folded": POST + b" X: y\r\n" + HOST + size + b"\r\n" + HIDDEN,
        "empty line before": b"\r\n" + request(size),
        "space in a name": request(b"X y: z\r\n" + size),
        "no name": request(b": z\r\n" + size),
        "no colon": request(b"Xyz\r\n" + size),
        "200 headers": request(b"".join(b"X-%d: y\r\n" % i for i in range(200)) + size),
        "head too long": request(b"X: " + b"y" * 70_000 + b"\r\n" + size),
    }


def heads() -> dict[str, bytes]:
    """Methods, versions and targets."""
    size = length(len(HIDDEN))
    old = b"POST /v1/classify HTTP/1.0\r\n"
    keep = b"Connection: keep-alive\r\n"
    versions = [b"HTTP/0.9", b"HTTP/1.2", b"HTTP/2.0", b"HTTP/1.10", b"HTTP/1", b"http/1.1", b""]
    return {
        "GET with a body": request(size, line=b"GET /v1/classify HTTP/1.1\r\n"),
        "HEAD with a body": request(size, line=b"HEAD /v1/classify HTTP/1.1\r\n"),
        "DELETE with a body": request(size, line=b"DELETE /v1/classify HTTP/1.1\r\n"),
        "GET with chunks": request(CHUNKED, chunk(HIDDEN) + LAST, b"GET /v1/classify HTTP/1.1\r\n"),
        "CONNECT": request(size, line=b"CONNECT /v1/classify HTTP/1.1\r\n"),
        "HTTP/0.9": b"GET /v1/classify\r\n" + HIDDEN,
        "HTTP/1.0 keep-alive": request(keep + size, line=old),
        "HTTP/1.0 keep-alive with TE": request(keep + CHUNKED, chunk(HIDDEN) + LAST, old),
        "HTTP/1.0 keep-alive with TE, behind": request(keep + CHUNKED, LAST + HIDDEN, old),
        "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + HIDDEN,
        "absolute target": request(size, line=b"POST http://localhost/v1/classify HTTP/1.1\r\n"),
        "absolute target of the policy": request(
            size, line=b"POST http://localhost/v1/models/tiny/policy HTTP/1.1\r\n"
        ),
        **{
            f"absolute target {target.decode()}": request(
                size, line=b"POST " + target + b" HTTP/1.1\r\n"
            )
            for target in _ABSOLUTE
        },
        "space in the target": request(size, line=b"POST /v1/classify /x HTTP/1.1\r\n"),
        "two spaces": request(size, line=b"POST  /v1/classify  HTTP/1.1\r\n"),
        "tab": request(size, line=b"POST\t/v1/classify\tHTTP/1.1\r\n"),
        **{
            f"{byte!r} in the target": request(size, line=POST.replace(b"v1", b"v" + byte))
            for byte in (b"\t", b"\x00", b"\x7f", b"\xe9", b"\r", b"\n", b"\x0b")
        },
        **{
            f"{byte!r} in the method": request(size, line=byte.join((b"PO", POST[2:])))
            for byte in (b"\x00", b":", b"\xe9", b"\r\n")
        },
        "space behind the version": request(size, line=POST[:-2] + b" \r\n"),
        "hidden in the target": b"GET /v1/classify?" + HIDDEN,
        "double Host, one empty": request(b"Host:\r\n" + size),
        "double Host of HTTP/1.0": request(b"Host: other\r\n" + size, line=old),
        "double Host": request(b"Host: other\r\n" + size),
        "no Host": POST + TYPE + size + b"\r\n" + HIDDEN,
        "close": request(b"Connection: close\r\n" + length(len(BODY)), BODY + HIDDEN),
        **{
            f"version {version.decode()!r}": request(
                size, line=b"POST /v1/classify " + version + b"\r\n"
            )
            for version in versions
        },
    }
