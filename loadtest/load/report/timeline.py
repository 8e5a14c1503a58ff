"""A run cut into equal bins of time, for the pictures."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from loadtest.load.samples import Samples

_MOST_BINS = 120


class Timeline(NamedTuple):
    """Figures by bin."""

    starts_s: NDArray[np.float64]  # (bins,) since the run began
    bin_s: float  # length of a bin
    sent: NDArray[np.float64]  # (bins,) requests per second that were due, or sent, in the bin
    answered: NDArray[np.float64]  # (bins,) requests per second that were answered in the bin
    failed: NDArray[np.float64]  # (bins,) failures per second, by when they were due or sent
    # (bins,) of the requests due or sent in the bin; NaN without an answer.
    p50_ms: NDArray[np.float64]
    p95_ms: NDArray[np.float64]  # 95th percentile of the same
    p99_ms: NDArray[np.float64]  # 99th percentile of the same
    users: NDArray[np.float64]  # (bins,) mean number
    exits: NDArray[np.int64]  # (layers, bins) answers by exit layer


def timeline(samples: Samples, users: Sequence[tuple[float, int]], seconds: float) -> Timeline:
    """Cut a run into bins of whole seconds.

    Args:
        samples: the requests, by when they began.
        users: (seconds since the run began, how many).
        seconds: the run's length, without answers that come later.
    """
    began, failed = samples.column("began_s"), samples.failures
    ended = began + samples.column("latency_ms") / 1e3
    seconds = max(seconds, float(ended.max(initial=0.0)))
    bin_s = float(max(1, int(np.ceil(seconds / _MOST_BINS))))
    num_bins = max(1, int(np.ceil(seconds / bin_s)))
    place, place_of_end = (
        np.clip(at_s // bin_s, 0, num_bins - 1).astype(np.int64) for at_s in (began, ended)
    )
    quantiles = _quantiles(samples.column("latency_ms")[~failed], place[~failed], num_bins)
    return Timeline(
        starts_s=np.arange(num_bins, dtype=np.float64) * bin_s,
        bin_s=bin_s,
        sent=np.bincount(place, minlength=num_bins) / bin_s,
        answered=np.bincount(place_of_end[~failed], minlength=num_bins) / bin_s,
        failed=np.bincount(place[failed], minlength=num_bins) / bin_s,
        p50_ms=quantiles[0],
        p95_ms=quantiles[1],
        p99_ms=quantiles[2],
        users=_users(users, num_bins, bin_s),
        exits=_exits(samples, num_bins, bin_s),
    )


def _quantiles(
    latency_ms: NDArray[np.float64], place: NDArray[np.int64], num_bins: int
) -> NDArray[np.float64]:
    """Return p50, p95 and p99 by bin: (3, bins)."""
    found = np.full((3, num_bins), np.nan)
    order = np.argsort(place, kind="stable")
    edges = np.searchsorted(place[order], np.arange(num_bins + 1))
    for index in range(num_bins):
        here = latency_ms[order[edges[index] : edges[index + 1]]]
        if len(here):
            found[:, index] = np.quantile(here, (0.5, 0.95, 0.99))
    return found


def _users(users: Sequence[tuple[float, int]], num_bins: int, bin_s: float) -> NDArray[np.float64]:
    if not users:
        return np.zeros(num_bins)
    at_s, counts = (np.array(column, dtype=np.float64) for column in zip(*users, strict=True))
    middles = (np.arange(num_bins) + 0.5) * bin_s
    return counts[np.clip(np.searchsorted(at_s, middles, side="right") - 1, 0, None)]


def _exits(samples: Samples, num_bins: int, bin_s: float) -> NDArray[np.int64]:
    counts = np.zeros((max(1, samples.layers), num_bins), dtype=np.int64)
    for second, exits in samples.exits.items():
        for exit_, count in exits.items():
            counts[exit_.layer - 1, min(int(second // bin_s), num_bins - 1)] += count
    return counts
