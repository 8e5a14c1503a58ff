"""A figure with its interval."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.quality.points import Interval


@dataclass(frozen=True, eq=False)
class Sampled:
    """A figure of all texts, and of each of the bootstrap's samples of them.

    Attributes:
        values: (1 + samples,) that of all texts comes first.
    """

    values: NDArray[np.float64]

    @property
    def value(self) -> float:
        """The figure of all texts."""
        return float(self.values[0])

    @property
    def interval(self) -> Interval:
        """The middle 95 % over the samples."""
        return Interval.of(self.values[1:])

    def __sub__(self, other: "Sampled") -> "Sampled":
        return Sampled(self.values - other.values)

    @property
    def shown(self) -> bool:
        """Whether it is another number than 0: the interval does not hold 0."""
        return not self.interval.low <= 0 <= self.interval.high

    def text(self, signed: bool = False, digits: int = 2) -> str:
        """Return it in hundredths, with the interval in brackets."""
        sign = "+" if signed else ""
        found = self.value, *self.interval
        value, low, high = (f"{100 * each:{sign}.{digits}f}" for each in found)
        return f"{value} ({low} to {high})"
