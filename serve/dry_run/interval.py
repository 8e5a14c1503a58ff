"""How sure an observed share is."""

from functools import lru_cache

import numpy as np

# Probability that a share lies within its interval.
LEVEL = 0.95
_STEPS = 60


@lru_cache(4096)
def interval(k: int, n: int) -> tuple[float, float]:
    """Return the exact interval of a share of which k of n were seen (Clopper and Pearson, 1934).

    It is for a number of texts that does not depend on what is seen of them.
    """
    if n == 0:
        return 0.0, 1.0
    if 2 * k > n:
        low, high = interval(n - k, n)
        return 1 - high, 1 - low
    tail = (1 - LEVEL) / 2
    low = _share_at(k - 1, n, 1 - tail) if k else 0.0
    return low, _share_at(k, n, tail)


def _share_at(k: int, n: int, wanted: float) -> float:
    """Return the share at which k or fewer of n are as likely as wanted."""
    i = np.arange(1, k + 1)
    log_ways = np.concatenate([[0.0], np.cumsum(np.log((n - i + 1) / i))])
    number = np.arange(k + 1)
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        p = (low + high) / 2
        likely = np.exp(log_ways + number * np.log(p) + (n - number) * np.log1p(-p)).sum()
        low, high = (p, high) if likely > wanted else (low, p)
    return (low + high) / 2
