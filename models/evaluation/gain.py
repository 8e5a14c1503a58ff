"""What early exit gains over stopping every text at the same layer, at equal mean depth.

The static curve runs straight from exit to exit: stopping some texts at one exit and the others
at the next, at random, reaches the points between.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.evaluation.bootstrap import Interval, Resampled

_GRID = 101


class Gain(NamedTuple):
    """One family of rules against the static curve.

    Attributes:
        mean: how far its curve lies above the static one, on average over the depths that it
            covers; of a metric from 0 to 1.
        interval: of the mean.
        area: between the curves, in metric times layers.
        depths: (grid,) from the family's lowest mean depth to its highest.
        at_depths: (grid,) how far it lies above there.
        intervals: (grid, 2) of that.
    """

    mean: float
    interval: Interval
    area: float
    depths: NDArray[np.float64]
    at_depths: NDArray[np.float64]
    intervals: NDArray[np.float64]

    @property
    def shown(self) -> bool:
        """Whether the data show a difference: the interval does not hold 0."""
        return not self.interval.low <= 0 <= self.interval.high


def gain(family: Resampled, static: Resampled) -> Gain:
    """Return what a family of rules gains.

    Args:
        family: its points.
        static: one point for each exit.
    """
    depths = np.linspace(family.depths[0].min(), family.depths[0].max(), _GRID)
    each = zip(family.depths, family.values, static.depths, static.values, strict=True)
    # (1 + samples, grid)
    gaps = np.stack([along(depths, x, y) - np.interp(depths, *line) for x, y, *line in each])
    means = np.trapezoid(gaps, dx=1 / (_GRID - 1), axis=-1)
    return Gain(
        mean=float(means[0]),
        interval=Interval.of(means[1:]),
        area=float(means[0] * (depths[-1] - depths[0])),
        depths=depths,
        at_depths=gaps[0],
        intervals=np.array([Interval.of(gaps[1:, place]) for place in range(_GRID)]),
    )


def along(
    at: NDArray[np.float64], depths: NDArray[np.float64], values: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return a curve's values at some depths; its points may come in any order."""
    order = np.argsort(depths, kind="stable")
    return np.interp(at, depths[order], values[order])
