"""Answers as JSON: numbers that JSON can hold, and long answers element by element."""

import math
from typing import Any, Final

import numpy as np
import orjson
from numpy.typing import NDArray

_LARGEST: Final = float(np.finfo(np.float32).max)
_OPTIONS: Final = orjson.OPT_SERIALIZE_NUMPY
# Lists of more elements are encoded one element after the other: a call holds the interpreter's
# lock, and the event loop runs between the calls of a thread.
_MANY: Final = 64


def short(value: float) -> float | None:
    """Return a float32 without the digits that it does not have; None if it is not finite."""
    return float(f"{value:.7g}") if math.isfinite(value) else None


def rounded(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return logits to six decimals, as JSON shows them; NaN becomes null there.

    An infinite logit becomes the largest float32 of its sign, which says the same.
    """
    bounded: NDArray[np.float64] = np.clip(logits.astype(np.float64), -_LARGEST, _LARGEST)
    return bounded.round(6)


def milliseconds(seconds: float) -> float:
    """Return milliseconds to the microsecond."""
    return round(seconds * 1000, 3)


def to_json(value: Any) -> bytes:
    """Return a list, or an object whose fields may be lists, as JSON; arrays are lists too."""
    if isinstance(value, dict) and any(map(_is_long, value.values())):
        named = (orjson.dumps(name) + b":" + to_json(field) for name, field in value.items())
        return b"{" + b",".join(named) + b"}"
    if _is_long(value):
        return b"[" + b",".join([orjson.dumps(each, option=_OPTIONS) for each in value]) + b"]"
    return orjson.dumps(value, option=_OPTIONS)


def _is_long(value: Any) -> bool:
    return isinstance(value, list) and len(value) > _MANY
