"""Intervals of figures by the bootstrap: the same figures of rows drawn with replacement."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from models.evaluation.points import Point
from models.evaluation.scores import of_sums

SAMPLES = 1000
LEVEL = 0.95
# Samples that are drawn at once, so that large files take little memory.
_CHUNK = 50


class Interval(NamedTuple):
    """The middle 95 % of a figure over the samples."""

    low: float
    high: float

    @classmethod
    def of(cls, values: ArrayLike) -> "Interval":
        """Return the interval of (samples,) values."""
        tail = (1 - LEVEL) / 2
        low, high = np.quantile(np.asarray(values, np.float64), [tail, 1 - tail]).tolist()
        return cls(low, high)


class Resampled(NamedTuple):
    """Points on all rows, and on rows drawn with replacement, the same ones for all points.

    Attributes:
        depths: (1 + samples, points) mean layers; those of all rows come first.
        values: (1 + samples, points) the main metric.
    """

    depths: NDArray[np.float64]
    values: NDArray[np.float64]

    def interval(self, place: int) -> Interval:
        """Return the interval of one point's metric."""
        return Interval.of(self.values[1:, place])

    def only(self, places: list[int]) -> "Resampled":
        """Return some of the points."""
        return Resampled(self.depths[:, places], self.values[:, places])


def resampled(metric: str, points: list[Point], samples: int = SAMPLES, seed: int = 0) -> Resampled:
    """Return the points' depths and metrics over the bootstrap's samples.

    Args:
        metric: whose sums the points hold.
        points: of the same rows, which are drawn.
        samples: how many are drawn.
        seed: of the draws.
    """
    # (rows, points, sums and depth)
    joint = np.stack([np.column_stack([p.statistics, p.layers]) for p in points], axis=1)
    num_rows, flat = len(joint), joint.reshape(len(joint), -1)
    sums = [flat.sum(axis=0, keepdims=True)]
    sums += [weights @ flat for weights in _weights(num_rows, samples, seed)]
    by_sample = np.concatenate(sums).reshape(1 + samples, *joint.shape[1:])
    return Resampled(by_sample[..., -1] / num_rows, of_sums(metric, by_sample[..., :-1]))


def _weights(num_rows: int, samples: int, seed: int) -> Iterator[NDArray[np.float64]]:
    """Yield (chunk, rows) how often each sample draws each row."""
    rng = np.random.default_rng(seed)
    for start in range(0, samples, _CHUNK):
        size = min(_CHUNK, samples - start)
        drawn = rng.integers(num_rows, size=(size, num_rows))
        drawn += num_rows * np.arange(size)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=size * num_rows)
        yield counts.reshape(size, num_rows).astype(np.float64)
