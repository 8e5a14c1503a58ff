"""Bodies whose end two parsers may see in two places: lengths, codings and chunks."""

from tests.serve.http.hidden_request import (
    BODY,
    CHUNKED,
    HIDDEN,
    LAST,
    UPGRADE,
    chunk,
    length,
    request,
)


def two_framings() -> dict[str, bytes]:
    behind = LAST + HIDDEN
    half = chunk(HIDDEN)
    return {
        "CL.TE": request(length(len(behind)) + CHUNKED, behind),
        "CL.TE in the other order": request(CHUNKED + length(len(behind)), behind),
        "CL.TE with a data chunk": request(
            length(len(chunk(BODY) + behind)) + CHUNKED, chunk(BODY) + behind
        ),
        "TE.CL": request(length(half.index(b"PUT")) + CHUNKED, half + LAST),
        "TE.CL of zero": request(length(0) + CHUNKED, half + LAST),
        "TE and two CL": request(length(4) + length(5) + CHUNKED, half + LAST),
        "upgrade, CL.TE": request(UPGRADE + length(len(behind)) + CHUNKED, behind),
        "upgrade, TE.CL": request(UPGRADE + length(4) + CHUNKED, half + LAST),
        "CL.TE of HTTP/1.0": request(
            b"Connection: keep-alive\r\n" + length(len(behind)) + CHUNKED,
            behind,
            b"POST /v1/classify HTTP/1.0\r\n",
        ),
        "CL named in Connection": request(
            b"Connection: keep-alive, Content-Length\r\n" + length(len(HIDDEN))
        ),
        "TE named in Connection": request(
            b"Connection: keep-alive, Transfer-Encoding\r\n" + CHUNKED, half + LAST
        ),
    }


def transfer_codings() -> dict[str, bytes]:
    """Codings that are none, or no plain chunked: with a length, and with no other framing.

    A parser that goes by the length or the chunks sees no second request, one that overlooks the
    coding does.
    """
    behind = LAST + HIDDEN
    fields = [
        b"Transfer-Encoding: xchunked",
        b"Transfer-Encoding: chunkedx",
        b"Transfer-Encoding:\tchunked",
        b"Transfer-Encoding: \x0bchunked",
        b"Transfer-Encoding: \x0cchunked",
        b"Transfer-Encoding: chunked\x0b",
        b"Transfer-Encoding: chunked\x00",
        b"Transfer-Encoding: chunked, identity",
        b"Transfer-Encoding: identity, chunked",
        b"Transfer-Encoding: gzip, chunked",
        b"Transfer-Encoding: chunked, chunked",
        b"Transfer-Encoding: chunked,",
        b"Transfer-Encoding: ,chunked",
        b"Transfer-Encoding: chunked;q=1",
        b'Transfer-Encoding: "chunked"',
        b"Transfer-Encoding: identity",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked",
        b"Transfer-Encoding : chunked",
        b"Transfer-Encoding\t: chunked",
        b"tRaNsFeR-EnCoDiNg: ChUnKeD",
        b"Transfer-Encoding:\r\n chunked",
        b"X: x\nTransfer-Encoding: chunked",
        b"X: x\rTransfer-Encoding: chunked",
        b"X: x\r\r\nTransfer-Encoding: chunked",
        b"Transfer-Encoding: chunked\xa0",
        b"Transfer-Encoding\xa0: chunked",
        b"Transfer-Encoding\x00: chunked",
        b"Transfer-Encoding: chunked\x7f",
        b"Transfer-Encoding: ch\x00unked",
    ]
    no_codings = [
        b" Transfer-Encoding: chunked",
        b"Transfer_Encoding: chunked",
        b"Transfer-Encoding:",
    ]
    alone = {f"{field!r} alone": request(field + b"\r\n") for field in fields}
    return alone | {
        repr(field): request(field + b"\r\n" + length(len(behind)), behind)
        for field in fields + no_codings
    }


def chunks() -> dict[str, bytes]:
    """Chunked bodies with sizes and ends that some parsers forgive."""
    size = b"%x" % len(HIDDEN)
    extension = b";a=" + b"x" * 20_000
    bodies = {
        "whole": chunk(HIDDEN) + LAST,
        "size 0x": b"0x%b\r\n%b\r\n" % (size, HIDDEN) + LAST,
        "size 0x0": b"0x0\r\n\r\n" + HIDDEN,
        "size with plus": b"+%b\r\n%b\r\n" % (size, HIDDEN) + LAST,
        "size of minus one": b"-1\r\n\r\n" + HIDDEN,
        "size of minus zero": b"-0\r\n\r\n" + HIDDEN,
        "space before the size": b" %b\r\n%b\r\n" % (size, HIDDEN) + LAST,
        "LF before the size": b"\n%b\r\n%b\r\n" % (size, HIDDEN) + LAST,
        "tab before the size": b"\t%b\r\n%b\r\n" % (size, HIDDEN) + LAST,
        "tab after the size": b"%b\t\r\n%b\r\n" % (size, HIDDEN) + LAST,
        "tab before an extension": b"%b\t;a\r\n%b\r\n" % (size, HIDDEN) + LAST,
        "CR after the size": b"%b\r\r\n%b\r\n" % (size, HIDDEN) + LAST,
        "comma in the size": b"0,5\r\n\r\n" + HIDDEN,
        "NUL in an extension": b"0;a\x00\r\n\r\n" + HIDDEN,
        "16 digits": b"8000000000000000\r\n" + HIDDEN,
        "space before zero": b" 0\r\n\r\n" + HIDDEN,
        "space after the size": b"%b \r\n%b\r\n" % (size, HIDDEN) + LAST,
        "space before an extension": b"%b ;a\r\n%b\r\n" % (size, HIDDEN) + LAST,
        "underscore in the size": b"0_0\r\n\r\n" + HIDDEN,
        "empty size": b"\r\n\r\n" + HIDDEN,
        "20 digits that wrap to zero": b"10000000000000000000\r\n\r\n" + HIDDEN,
        "17 digits that wrap to zero": b"10000000000000000\r\n\r\n" + HIDDEN,
        "21 digits": b"100000000000000000000\r\n\r\n" + HIDDEN,
        "leading zeros": b"0000000000%b\r\n%b\r\n" % (size, HIDDEN) + LAST,
        "too many leading zeros": b"0" * 30 + b"%b\r\n%b\r\n" % (size, HIDDEN) + LAST,
        "long extension": b"%b%b\r\n%b\r\n" % (size, extension, HIDDEN) + LAST,
        "extension with LF": b"5;a\nxxxx\r\n" + LAST + HIDDEN,
        "extension with CR": b"5;a\rxxxx\r\n" + LAST + HIDDEN,
        "extension with the hidden request": b'5;a="\n\n' + HIDDEN + b'"\r\n' + HIDDEN,
        "extension of the last chunk with LF": b"0;\n\n" + HIDDEN,
        "size ended by LF": b"%b\n%b\r\n" % (size, HIDDEN) + LAST,
        "size ended by CR": b"0\r\r" + HIDDEN,
        "no end after the data": b"5\r\nhello0\r\n\r\n" + HIDDEN,
        "LF after the data": b"5\r\nhello\n0\r\n\r\n" + HIDDEN,
        "two bytes that are no end": b"5\r\nhelloXX0\r\n\r\n" + HIDDEN,
        "size too small": b"2\r\nhello\r\n0\r\n\r\n" + HIDDEN,
        "NUL after the size": b"0\x00\r\n\r\n" + HIDDEN,
        "trailer with a length": b"%b0\r\nContent-Length: %d\r\nX: y"
        % (chunk(HIDDEN), len(HIDDEN)),
        "trailers that frame": chunk(HIDDEN)
        + b"0\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\nHost: other\r\n\r\n",
        "LF in a trailer": chunk(BODY) + b"0\r\nX: y\n\r\n" + HIDDEN,
        "LF ends the trailers": chunk(BODY) + b"0\r\nX: y\n\n" + HIDDEN,
        "CR in a trailer": chunk(BODY) + b"0\r\nX: y\rz\r\n\r\n" + HIDDEN,
        "LF instead of trailers": chunk(BODY) + b"0\r\n\n" + HIDDEN,
        "ended trailer with a bad name": chunk(BODY) + b"0\r\nX y: z\r\n\r\n" + HIDDEN,
        "ended trailer without a colon": chunk(BODY) + b"0\r\nGET / HTTP/1.1\r\n\r\n" + HIDDEN,
        "trailer folded": chunk(BODY) + b"0\r\n X: y\r\n\r\n" + HIDDEN,
    }
    return {name: request(CHUNKED, body) for name, body in bodies.items()}


def lengths() -> dict[str, bytes]:
    size = len(HIDDEN)
    values = {
        "plus": b"+%d" % size,
        "minus one": b"-1",
        "minus zero": b"-0",
        "equal in a list": b"%d, %d" % (size, size),
        "different in a list": b"0, %d" % size,
        "different in a list, zero last": b"%d, 0" % size,
        "5,000 digits": b"1" * 5000,
        "5,000 zeros": b"0" * 5000,
        "wraps to zero": b"18446744073709551616",
        "wraps to zero in 32 bits": b"4294967296",
        "space inside": b"1 0",
        "spaces around": b"  %d \t" % size,
        "empty": b"",
        "hexadecimal": b"0x%x" % size,
        "underscore": b"0_0",
        "fraction": b"0.0",
        "exponent": b"0e1",
        "comma": b"0,",
        "NUL": b"0\x00",
        "vertical tab": b"\x0b0",
        "other digits": b"\xd9\xa0",
        "superscript digit": b"\xb2",
        "no-break spaces around": b"\xa0%d\xa0" % size,
        "tab inside": b"1\t0",
        "more than 63 bits": b"9223372036854775808",
    }
    fields = {name: length(value) for name, value in values.items()}
    fields |= {
        "two equal": length(size) * 2,
        "two different": length(0) + length(size),
        "two different, zero last": length(size) + length(0),
        "two, one empty": length(b"") + length(size),
        "in a list and again": length(b"%d, %d" % (size, size)) + length(size),
        "tab before the colon": b"Content-Length\t: %d\r\n" % size,
        "space before the colon": b"Content-Length : %d\r\n" % size,
        "underscore in the name": b"Content_Length: 0\r\n" + length(size),
        "folded": b"Content-Length:\r\n %d\r\n" % size,
        "folded in two": b"Content-Length: 0\r\n %d\r\n" % size,
    }
    return {name: request(field) for name, field in fields.items()}
