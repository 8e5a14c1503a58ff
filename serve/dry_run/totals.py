"""What an exit would do to texts, as numbers that add up over replicas."""

import math
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

# Of a normal distribution, the half width of its 95 % in standard deviations.
_WIDTH: Final = 1.96
# The probability that a share lies outside of its interval on one side.
_TAIL: Final = 0.025
_STEPS: Final = 60


class Totals(NamedTuple):
    """Sums over texts; those of a flag are 0 without one.

    Attributes:
        texts: number of texts.
        layers: layers that the texts run, each text in the mean over its windows.
        squared: the squares of those layers.
        ms: milliseconds that the texts take.
        differ: texts that are answered otherwise than at full depth; negative where that cannot be
            said.
        flagged: texts that are flagged by the answers that are sent.
        deferred: texts that are deferred by the answers that are sent.
        due: texts that full depth flags.
        missed: texts that full depth flags and the answer does not.
        false_alarms: texts that the answer flags and full depth does not.
    """

    texts: int = 0
    layers: float = 0.0
    squared: float = 0.0
    ms: float = 0.0
    differ: int = 0
    flagged: int = 0
    deferred: int = 0
    due: int = 0
    missed: int = 0
    false_alarms: int = 0

    def plus(self, other: "Totals") -> "Totals":
        """Return the sums over both."""
        return Totals._make(a + b for a, b in zip(self, other, strict=True))

    @property
    def layers_interval(self) -> tuple[float, float]:
        """The mean of layers, give or take 1.96 standard errors."""
        mean = self.layers / self.texts
        variance = max(0.0, self.squared / self.texts - mean**2)
        about = _WIDTH * math.sqrt(variance / self.texts)
        return mean - about, mean + about


@lru_cache(4096)
def interval(k: int, n: int) -> tuple[float, float]:
    """Return the exact interval of a share of which k of n were seen (Clopper and Pearson, 1934).

    The share lies within it with a probability of 95 %, for a number of texts that does not depend
    on what is seen of them.
    """
    if n == 0:
        return 0.0, 1.0
    if 2 * k > n:
        low, high = interval(n - k, n)
        return 1 - high, 1 - low
    low = _share_at(k - 1, n, 1 - _TAIL) if k else 0.0
    return low, _share_at(k, n, _TAIL)


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
