"""What an exit would do to texts, as numbers that add up over replicas."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from serve.dry_run.interval import interval
from serve.dry_run.replayed import Replayed

# Of a normal distribution, the half width of its 95 % in standard deviations.
_WIDTH = 1.96


class Totals(NamedTuple):
    """Sums over texts; those of a flag are 0 without one.

    Attributes:
        texts: how many.
        layers: that they run, each in the mean over its windows.
        squared: the squares of these.
        ms: that they take.
        differ: answered otherwise than at full depth; negative where that cannot be said.
        flagged: by the answers that are sent.
        deferred: by the answers that are sent.
        due: flagged at full depth.
        missed: flagged at full depth alone.
        false_alarms: not flagged at full depth.
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

    @classmethod
    def of(cls, found: Replayed, chosen: NDArray[np.bool_]) -> "Totals":
        """Count some of the texts; `chosen` is (texts,)."""
        layers = found.layers[chosen]
        differ = -len(layers) if found.differs is None else int(found.differs[chosen].sum())
        sums = cls(
            texts=len(layers),
            layers=float(layers.sum()),
            squared=float((layers**2).sum()),
            ms=float(found.ms[chosen].sum()),
            differ=differ,
        )
        if found.flags is None:
            return sums
        flagged, deferred, due = (each[chosen] for each in found.flags)
        return sums._replace(
            flagged=int(flagged.sum()),
            deferred=int(deferred.sum()),
            due=int(due.sum()),
            missed=int((due & ~flagged).sum()),
            false_alarms=int((flagged & ~due).sum()),
        )

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


def share(k: int, n: int) -> tuple[float | None, tuple[float, float]]:
    """Return a share and its interval; None where there is nothing to have a share of."""
    return (k / n if n else None), interval(k, n)
