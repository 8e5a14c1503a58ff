"""The texts of one simulation, the same for every contender."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from loadtest.simulator.arrivals import Arrivals, Times
from loadtest.simulator.exit_mixes import ExitMix
from loadtest.simulator.lengths import sst2_lengths


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """Requests of one text each, in order of arrival."""

    arrival_s: Times  # (requests,) ascending
    tokens: NDArray[np.int64]  # (requests,)
    exits: NDArray[np.int64]  # (requests,) segments each runs through, from 1

    def __len__(self) -> int:
        return len(self.arrival_s)

    def all_at_once(self) -> "Workload":
        """Return the same requests, all waiting from the start."""
        return replace(self, arrival_s=np.zeros(len(self)))


@dataclass(frozen=True, slots=True)
class Traffic:
    """The distributions that requests are drawn from."""

    arrivals: Arrivals  # when requests arrive
    mix: ExitMix  # their exit layers
    tokens: int | None = None  # of every text; as many as in SST-2 without

    def draw(self, rate: float, num: int, seed: int) -> Workload:
        """Return `num` requests at `rate` per second.

        Lengths and exits depend on the seed alone: all rates and arrivals have the same requests.
        """
        when, what = np.random.default_rng((seed, 0)), np.random.default_rng((seed, 1))
        tokens = sst2_lengths(num, what) if self.tokens is None else np.full(num, self.tokens)
        exits = self.mix.draw(num, what)
        return Workload(self.arrivals.draw(rate, num, when), tokens, exits)
