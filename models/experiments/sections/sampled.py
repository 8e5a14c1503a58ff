"""A figure with its interval."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.evaluation.bootstrap import Interval
from models.evaluation.model_card import hundredths


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

    def text(self, signed: bool = False) -> str:
        """Return it in hundredths, with the interval in brackets."""
        low, high = (hundredths(end, signed) for end in self.interval)
        return f"{hundredths(self.value, signed)} ({low} to {high})"
