"""A figure with its interval."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.quality.points import Interval

_ROUNDING = 1e-9


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

    def text(self, digits: int = 2) -> str:
        """Return it in hundredths, with the interval in brackets."""
        found = self.value, *self.interval
        value, low, high = (f"{100 * each:.{digits}f}" for each in found)
        return f"{value} ({low} to {high})"

    def change(self, num_texts: int) -> str:
        """Return a difference of shares in points, with its sign and the interval.

        If no sample of the texts has a difference, no text has changed, and the interval says
        nothing: then the exact bound of the share that may change stands in its place.
        """
        if np.abs(self.values).max() < _ROUNDING:
            return f"0 of {num_texts:,}: at most {100 * most_share(num_texts):.2f} %"
        value, low, high = (f"{100 * each:+.2f}" for each in (self.value, *self.interval))
        return f"{value} ({low} to {high})"


def most_share(num_texts: int, level: float = 0.95) -> float:
    """Return the one-sided upper bound of a share of which no text of so many was seen."""
    return float(1 - (1 - level) ** (1 / num_texts))
