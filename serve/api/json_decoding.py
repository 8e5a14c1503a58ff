"""JSON that clients send, read strictly and in a time that is bounded before it is read.

Python objects are dear: a body of 2 MiB may hold 700,000 of them, and while it is decoded the event
loop answers nothing else. So what the text holds is counted first, at the speed of memory.
"""

import codecs
import gc
import json
from collections import Counter
from typing import Any, Final

import numpy as np

from serve.classifier.classify_request import MAX_LIST
from serve.errors import MalformedBody

# A flag may name 1,000 labels. Naming each of 200,000 unknown fields would block the event loop for
# seconds.
MAX_FIELDS: Final = 1024
# Objects, lists and fields of objects: six for each row of the longest list.
MAX_PARTS: Final = 6 * MAX_LIST
# Numbers with a fraction or an exponent, which rules and flags have.
MAX_FRACTIONS: Final = 10_000
# Elements of one tensor: the tokens of a full queue.
MAX_ELEMENTS: Final = 131_072
# Elements of lists beyond the first of each: an id and a type for each token of a full queue.
MAX_LISTED: Final = 2 * MAX_ELEMENTS
# Digits of a number in a row; the time to read them grows by their square.
MAX_DIGITS: Final = 20
_AS_ZEROS: Final = bytes.maketrans(b"123456789", b"000000000")
_TOO_MANY_ZEROS: Final = b"0" * (MAX_DIGITS + 1)
# A smaller text cannot hold enough to matter.
_SMALL_BYTES: Final = 16 * 1024

_PARTS: Final = b"[{:"
_ELEMENTS: Final = b","


def parse_json(body: bytes, max_listed: int = MAX_LISTED) -> Any:
    """Return parsed JSON; encodings and repeated fields on which parsers differ are refused.

    A byte order mark before it, as some writers of files put there, is skipped.

    Args:
        body: the text.
        max_listed: elements of lists beyond the first of each.

    Raises:
        MalformedBody: it is no such JSON, or holds more than any request needs.
    """
    body = body.removeprefix(codecs.BOM_UTF8)
    try:
        if len(body) <= _SMALL_BYTES:
            return _DECODER.decode(body.decode())
        _check_size(body, max_listed)
        return _decoded(body.decode())
    except json.JSONDecodeError as error:
        reason = error.msg.removesuffix(" at").rstrip(" :")
        raise MalformedBody(f"the body is not JSON: {reason} at character {error.pos}") from None
    except UnicodeDecodeError as error:
        raise MalformedBody(f"the body is not UTF-8 at byte {error.start}") from None
    except RecursionError:
        raise MalformedBody("the body is nested too deeply") from None
    except ValueError:
        raise MalformedBody("the body has a number with too many digits") from None


def _decoded(text: str) -> Any:
    """Return the objects of a large text.

    The collector would look for cycles after every few hundred of them, which makes a text of many
    small lists take six times as long. There are none.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        return _decoder(_Fractions().read).decode(text)
    finally:
        if enabled:
            gc.enable()


def _check_size(body: bytes, max_listed: int) -> None:
    """Refuse a text that holds more than any request needs, before objects are made of it."""
    fits = _count(body, _PARTS) <= MAX_PARTS and _count(body, _ELEMENTS) <= max_listed
    if fits and not _has_long_number(body):
        return
    # Texts may hold any number of commas, brackets and digits.
    outside = _outside_texts(body)
    parts, elements = _count(outside, _PARTS), _count(outside, _ELEMENTS)
    if parts > MAX_PARTS or elements > max_listed:
        raise MalformedBody(
            f"the body has {parts} objects, lists and fields, and {elements} commas between "
            f"elements; no request needs more than {MAX_PARTS} and {max_listed}"
        )
    if _has_long_number(outside):
        raise MalformedBody(f"the body has a number with more than {MAX_DIGITS} digits in a row")


def _has_long_number(body: bytes) -> bool:
    return _TOO_MANY_ZEROS in body.translate(_AS_ZEROS)


def _count(body: bytes, characters: bytes) -> int:
    return sum(body.count(character) for character in characters)


def _outside_texts(body: bytes) -> bytes:
    """Return what stands outside quotes, as far as the body is JSON."""
    if b"\\" in body:
        body = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    codes = np.frombuffer(body, np.uint8)
    return codes[~np.logical_xor.accumulate(codes == ord('"'))].tobytes()


class _Fractions:
    """Reads as many numbers with a fraction or an exponent as a body may have."""

    def __init__(self) -> None:
        self._left = MAX_FRACTIONS

    def read(self, text: str) -> float:
        self._left -= 1
        if self._left < 0:
            raise MalformedBody(
                f"the body has more than {MAX_FRACTIONS} numbers with a fraction or an exponent; "
                "no request needs as many"
            )
        return float(text)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > MAX_FIELDS:
        raise MalformedBody(
            f"the body has an object of {len(pairs)} fields; none needs more than {MAX_FIELDS}"
        )
    fields = dict(pairs)
    if len(fields) < len(pairs):
        counted = Counter(name for name, _ in pairs)
        repeated = next(name for name, number in counted.items() if number > 1)
        raise MalformedBody(f"the body has the field {repeated[:64]!r} twice in one object")
    return fields


def _decoder(parse_float: Any = None) -> json.JSONDecoder:
    return json.JSONDecoder(object_pairs_hook=_object, parse_float=parse_float)


_DECODER: Final = _decoder()
