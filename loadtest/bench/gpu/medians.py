"""Medians of runs that are repeated for some time."""

from collections.abc import Callable, Sequence
from time import perf_counter

import numpy as np

_FEWEST = 3


def medians(timers: Sequence[Callable[[], Sequence[float]]], seconds: float) -> list[list[float]]:
    """Run all in turns until the time is over, and return each one's medians.

    The first run of each does not count. There is one more in any case, and three if they are
    over in thrice the time.
    """
    for timer in timers:
        timer()
    runs: list[list[Sequence[float]]] = [[] for _ in timers]
    began = perf_counter()
    while not runs[0] or perf_counter() - began < (
        seconds if len(runs[0]) >= _FEWEST else 3 * seconds
    ):
        for found, timer in zip(runs, timers, strict=True):
            found.append(timer())
    return [np.median(found, axis=0).tolist() for found in runs]


def median_s(run: Callable[[], object], seconds: float) -> float:
    """Return the median of one run's seconds."""

    def timed() -> list[float]:
        began = perf_counter()
        run()
        return [perf_counter() - began]

    return medians([timed], seconds)[0][0]


def median_of(timer: Callable[[], float], seconds: float) -> float:
    """Return the median of what a timer returns."""
    return medians([lambda: [timer()]], seconds)[0][0]
