"""A path of pairs: how sure a first judge must be, and by which rule the second lets texts leave.

The first judge is a model's table, or another model's exits; what it does not answer goes on to the
second. Either has a path of its own, from strict to loose, and a pair is a place in each.
"""

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

# (places of a path, texts)
_ByText: TypeAlias = NDArray[np.float64]

# Shares of other answers for which a pair is chosen, beside 0.
ALLOWED = np.geomspace(1e-3, 1, 120)


class Judge(NamedTuple):
    """What the places of a path, from strict to loose, make of texts.

    Attributes:
        loss: of a text that leaves there; of others it means nothing.
        cost: of every text.
        leaves: whether a text leaves; None of the second judge, where all do.
    """

    loss: _ByText
    cost: _ByText
    leaves: NDArray[np.bool_] | None = None


def pairs(first: Judge, second: Judge) -> list[tuple[int, int]]:
    """Return pairs of places, from safe to fast: along them neither judge becomes stricter.

    They lead from the strictest by small steps through the `cheapest` ones. So a certificate that
    ends between two of these loses little.
    """
    path = [(0, 0)]
    for pair in cheapest(first, second):
        start, num_steps = path[-1], max(np.subtract(pair, path[-1]))
        for step in range(1, num_steps + 1):
            way = (a + round(step * (b - a) / num_steps) for a, b in zip(start, pair, strict=True))
            path.append((next(way), next(way)))
    return path


def cheapest(first: Judge, second: Judge) -> list[tuple[int, int]]:
    """Return the pair of least mean cost for each of a rising row of allowed shares.

    Along them neither judge becomes stricter; of all such rows this one costs least in the mean.
    """
    assert first.leaves is not None
    goes_on = (~first.leaves).T.astype(np.float64)
    left = first.leaves * first.loss
    # (places of the second, places of the first)
    loss = (second.loss @ goes_on) / len(goes_on) + left.mean(axis=1)
    cost = (second.cost @ goes_on) / len(goes_on) + first.cost.mean(axis=1)
    sums = [np.zeros_like(cost)]
    for allowed in (0.0, *ALLOWED):
        kept = np.where(loss <= allowed + 1e-12, cost, np.inf)
        if np.isfinite(kept).any():
            sums.append(kept + _least_before(sums[-1]))
    return _followed_back(sums[1:])


def _least_before(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the least sum of all pairs that are no looser in either place."""
    least: NDArray[np.float64] = np.minimum.accumulate(np.minimum.accumulate(sums, axis=0), axis=1)
    return least


def _followed_back(sums: list[NDArray[np.float64]]) -> list[tuple[int, int]]:
    """Return the pairs of the least sum."""
    found, end = list[tuple[int, int]](), sums[-1].shape
    for each in reversed(sums):
        place = np.unravel_index(np.argmin(each[: end[0], : end[1]]), (end[0], end[1]))
        second, first = int(place[0]), int(place[1])
        found.append((first, second))
        end = second + 1, first + 1
    return found[::-1]
