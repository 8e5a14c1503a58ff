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
        return not self.interval.holds(0.0)


def gain(family: Resampled, static: Resampled) -> Gain:
    """Return what a family of rules gains.

    Args:
        family: its points.
        static: one point for each exit.
    """
    depths = np.linspace(family.depths[0].min(), family.depths[0].max(), _GRID)
    gaps = np.stack(
        [
            gap(depths, (own, value), (static_depth, static_value))
            for own, value, static_depth, static_value in zip(
                family.depths, family.values, static.depths, static.values, strict=True
            )
        ]
    )  # (1 + samples, grid)
    means = mean_of(gaps)
    return Gain(
        mean=float(means[0]),
        interval=Interval.of(means[1:]),
        area=float(means[0] * (depths[-1] - depths[0])),
        depths=depths,
        at_depths=gaps[0],
        intervals=np.array([Interval.of(gaps[1:, place]) for place in range(_GRID)]),
    )


def gap(
    at: NDArray[np.float64],
    curve: tuple[NDArray[np.float64], NDArray[np.float64]],
    static: tuple[NDArray[np.float64], NDArray[np.float64]],
) -> NDArray[np.float64]:
    """Return how far a curve lies above another one at these depths.

    Args:
        at: depths.
        curve: depths and values of its points, in any order.
        static: depths, ascending, and values.
    """
    order = np.argsort(curve[0], kind="stable")
    above: NDArray[np.float64] = np.interp(at, curve[0][order], curve[1][order])
    return above - np.interp(at, *static)


def mean_of(gaps: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the area under (..., grid) gaps, by the trapezoid rule, over the grid's width."""
    mean: NDArray[np.float64] = ((gaps[..., 1:] + gaps[..., :-1]) / 2).mean(axis=-1)
    return mean
