"""Numbers as JSON can hold them."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

_LARGEST = float(np.finfo(np.float32).max)


def short(value: float) -> float | None:
    """Return a float32 without the digits that it does not have; None for what is no number."""
    return float(f"{value:.7g}") if math.isfinite(value) else None


def listed(logits: NDArray[np.float32]) -> list[Any]:
    """Return logits as nested lists, to six decimals.

    Infinite ones become the largest that float32 holds, which says the same; NaN becomes None.
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
