"""The texts of one simulation, the same for every contender."""

from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from loadtest.simulator.exit_mixes import ExitMix
from loadtest.simulator.lengths import sst2_lengths

Times: TypeAlias = NDArray[np.float64]


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
    """Independent arrivals at a constant rate, of texts as long as in SST-2."""

    mix: ExitMix  # their exit layers
    tokens: int | None = None  # of every text; as many as in SST-2 without

    def draw(self, rate: float, num: int, seed: int) -> Workload:
        """Return `num` requests at `rate` per second.

        Lengths and exits depend on the seed alone: all rates have the same requests.
        """
        when, what = np.random.default_rng((seed, 0)), np.random.default_rng((seed, 1))
        tokens = sst2_lengths(num, what) if self.tokens is None else np.full(num, self.tokens)
        exits = self.mix.draw(num, what)
        return Workload(np.cumsum(when.exponential(1 / rate, num)), tokens, exits)


class Record:
    """The outcome of every request, written while a contender runs.

    Attributes:
        answered_s: (requests,) when each was answered; NaN until then.
        layers: (requests,) segments run per answer.
    """

    def __init__(self, num: int) -> None:
        self.answered_s = [float("nan")] * num
        self.layers = [0] * num

    def answer(self, request: int, now_s: float, layer: int) -> None:
        """Record a request's answer after `layer` segments.

        Raises:
            RuntimeError: it was answered before.
        """
        if self.layers[request]:
            raise RuntimeError("a request was answered twice")
        self.answered_s[request], self.layers[request] = now_s, layer

    def answered(self) -> Times:
        """Return (requests,) when each was answered.

        Raises:
            RuntimeError: a request was lost.
        """
        if not all(self.layers):
            raise RuntimeError("a request was lost")
        return np.array(self.answered_s)
