"""Answers as JSON: numbers that JSON can hold, and long answers element by element."""

import math
from json import JSONEncoder
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_LARGEST = float(np.finfo(np.float32).max)

# The same settings as in `starlette.responses.JSONResponse`.
_encode: Final = JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def short(value: float) -> float | None:
    """Return a float32 without the digits that it does not have; None if it is not finite."""
    return float(f"{value:.7g}") if math.isfinite(value) else None


def logits_as_lists(logits: NDArray[np.float32]) -> list[Any]:
    """Return logits as nested lists, to six decimals.

    An infinite logit becomes the largest float32 of its sign, which says the same; NaN becomes
    None.
    """
    bounded = np.clip(logits.astype(np.float64), -_LARGEST, _LARGEST)
    rounded: list[Any] = bounded.round(6).tolist()
    return _without_nan(rounded) if np.isnan(bounded).any() else rounded


def _without_nan(values: list[Any]) -> list[Any]:
    return [
        _without_nan(value) if isinstance(value, list) else (None if math.isnan(value) else value)
        for value in values
    ]


def milliseconds(seconds: float) -> float:
    """Return milliseconds to the microsecond."""
    return round(seconds * 1000, 3)


def encode_by_element(value: Any) -> bytes:
    """Return a list, or an object whose fields may be lists, as JSON, element by element.

    Python's encoder holds the interpreter lock during a whole call, half a second for 14 MB. Many
    short calls on a thread let the event loop run between them.

    Raises:
        ValueError: a number is not finite.
    """
    if not isinstance(value, dict):
        return _encoded(value).encode()
    named = zip(map(_encode, value), map(_encoded, value.values()), strict=True)
    return f"{{{','.join([f'{name}:{encoded}' for name, encoded in named])}}}".encode()


def _encoded(value: Any) -> str:
    if isinstance(value, list):
        return f"[{','.join([_encode(element) for element in value])}]"
    return _encode(value)
