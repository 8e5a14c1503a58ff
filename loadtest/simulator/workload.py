"""The texts of one simulation, the same for every contender."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from loadtest.simulator.arrivals import Arrivals, Times
from loadtest.simulator.exit_mixes import ExitMix
from loadtest.simulator.lengths import Lengths
from serve.engine.row import Priority


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """Texts in order of arrival; most are requests of their own."""

    arrival_s: Times  # (requests,) ascending
    tokens: NDArray[np.int64]  # (requests,)
    exits: NDArray[np.int64]  # (requests,) segments each runs through, from 1
    priority: NDArray[np.int64]  # (requests,) values of `serve.engine.row.Priority`
    deadline_s: Times  # (requests,) on the clock of `arrival_s`; infinite for none
    # (requests,) tokens of the texts before each in a request of several.
    ahead_tokens: NDArray[np.int64]
    lone: NDArray[np.bool_]  # (requests,) whether each is a request of its own

    def __len__(self) -> int:
        return len(self.arrival_s)

    def all_at_once(self) -> "Workload":
        """Return the same requests, all waiting from the start, without deadlines."""
        return replace(
            self,
            arrival_s=np.zeros(len(self)),
            deadline_s=np.full(len(self), np.inf),
        )


@dataclass(frozen=True, slots=True)
class Traffic:
    """The distributions that requests are drawn from."""

    arrivals: Arrivals  # when requests arrive
    mix: ExitMix  # their exit layers
    lengths: Lengths  # their tokens
    urgent_share: float = 0.0  # of requests have high priority, the rest normal
    timeout_s: float = float("inf")  # after arrival; infinite for none
    batch_share: float = 0.0  # of requests have several texts
    batch_texts: int = 64  # texts of those requests

    def draw(self, rate: float, num: int, seed: int) -> Workload:
        """Return `num` texts at `rate` per second.

        Lengths, exits and priorities depend on the seed alone, so all rates and arrivals have the
        same requests.
        """
        when, what = np.random.default_rng((seed, 0)), np.random.default_rng((seed, 1))
        tokens = self.lengths.draw(num, what)
        exits = self.mix.draw(num, what)
        urgent = what.random(num) < self.urgent_share
        sizes = np.where(what.random(num) < self.batch_share, self.batch_texts, 1)
        sizes = sizes[: np.searchsorted(np.cumsum(sizes), num) + 1]
        arrival_s = self.arrivals.draw(rate * len(sizes) / num, len(sizes), when)
        request = np.repeat(np.arange(len(sizes)), sizes)[:num]
        before = np.concatenate([[0], np.cumsum(tokens)[:-1]])
        return Workload(
            arrival_s[request],
            tokens,
            exits,
            np.where(urgent, Priority.HIGH, Priority.NORMAL)[request],
            arrival_s[request] + self.timeout_s,
            before - before[np.searchsorted(request, request)],
            sizes[request] == 1,
        )
