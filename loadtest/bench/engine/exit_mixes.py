"""Where requests leave: mixes of exit layers, forced by a fixed-layer rule each."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_GOLDEN = 0.5 * (5**0.5 - 1)


@dataclass(frozen=True)
class ExitMix:
    """Shares of requests by exit layer.

    Attributes:
        name: for tables.
        shares: share of the requests that leave at layer 1, 2, ...; they add up to 1.
    """

    name: str
    shares: tuple[float, ...]

    @property
    def depth(self) -> int:
        """The model's layers."""
        return len(self.shares)

    @property
    def mean_layer(self) -> float:
        """Layers that a request runs on average."""
        return sum(layer * share for layer, share in enumerate(self.shares, 1))

    def assign(self, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return an exit layer per request, alike among short and long ones; (requests,).

        Multiples of the golden ratio lie evenly in every stretch of the requests sorted by
        length, so the tokens' mean layer is the requests' and does not depend on luck.
        """
        ranks = np.empty(len(lengths), np.int64)
        ranks[np.argsort(lengths, kind="stable")] = np.arange(len(lengths))
        quantiles = (ranks * _GOLDEN) % 1
        layers = 1 + np.searchsorted(np.cumsum(self.shares), quantiles, side="right")
        return np.minimum(layers, self.depth)


def uniform(depth: int) -> ExitMix:
    """Return equal shares for all layers from the second to the last."""
    return ExitMix(f"uniform 2 to {depth}", (0.0, *[1 / (depth - 1)] * (depth - 1)))


# Most leave early, a few run to the end: the form that DeeBERT's figures have on easy tasks.
EARLY_12 = ExitMix(
    "DeeBERT-like", (0.08, 0.14, 0.18, 0.16, 0.12, 0.10, 0.05, 0.04, 0.03, 0.03, 0.02, 0.05)
)


def early(depth: int) -> ExitMix:
    """Return the DeeBERT-like mix (12 layers, mean 4.8), squeezed or stretched to a depth."""
    if depth == EARLY_12.depth:
        return EARLY_12
    ends = np.interp(np.linspace(0, 12, depth + 1), range(13), [0, *np.cumsum(EARLY_12.shares)])
    return ExitMix(EARLY_12.name, tuple(np.diff(ends).tolist()))
