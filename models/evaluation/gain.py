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
        depths: from where to where, in layers.
        area: between the curves, in metric times layers.
    """

    mean: float
    interval: Interval
    depths: tuple[float, float]
    area: float

    @property
    def shown(self) -> bool:
        """Whether the data show a difference: the interval does not hold 0."""
        return not self.interval.holds(0.0)


def gain(family: Resampled, static: Resampled) -> Gain:
    """Return what a family of rules gains.

    Args:
        family: its points.
        static: one point for each exit.
    """
    means = np.array([_mean_gap(family, static, sample) for sample in range(len(family.depths))])
    lowest, highest = float(family.depths[0].min()), float(family.depths[0].max())
    mean = float(means[0])
    return Gain(mean, Interval.of(means[1:]), (lowest, highest), mean * (highest - lowest))


def mean_gap(
    depth: NDArray[np.float64],
    value: NDArray[np.float64],
    static_depth: NDArray[np.float64],
    static_value: NDArray[np.float64],
) -> float:
    """Return the area between two curves over the width of the first; both (points,)."""
    order = np.argsort(depth, kind="stable")
    depth, value = depth[order], value[order]
    grid = np.linspace(depth[0], depth[-1], _GRID)
    gap = np.interp(grid, depth, value) - np.interp(grid, static_depth, static_value)
    return float(((gap[1:] + gap[:-1]) / 2).mean())


def _mean_gap(family: Resampled, static: Resampled, sample: int) -> float:
    return mean_gap(
        family.depths[sample], family.values[sample], static.depths[0], static.values[sample]
    )
