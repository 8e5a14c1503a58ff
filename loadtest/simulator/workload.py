"""The texts of one simulation, the same for every contender."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from loadtest.simulator.arrivals import Arrivals, Recorded, Times
from loadtest.simulator.exits import ExitMix
from loadtest.simulator.lengths import Lengths
from loadtest.simulator.trace import Trace
from serve.engine.row import Priority


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """Texts in order of arrival; most are requests of their own.

    Attributes:
        arrival_s: (requests,) ascending.
        tokens: (requests,).
        exits: (requests,) segments each runs through, from 1.
        priority: (requests,) values of `serve.engine.row.Priority`.
        deadline_s: (requests,) on the clock of `arrival_s`; infinite for none.
        ahead_tokens: (requests,) tokens of the texts before each in a request of several.
        lone: (requests,) whether each is a request of its own.
    """

    arrival_s: Times
    tokens: NDArray[np.int64]
    exits: NDArray[np.int64]
    priority: NDArray[np.int64]
    deadline_s: Times
    ahead_tokens: NDArray[np.int64]
    lone: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.arrival_s)

    def all_at_once(self) -> "Workload":
        """Return the same requests, all waiting from the start, in no hurry."""
        return replace(
            self,
            arrival_s=np.zeros(len(self)),
            deadline_s=np.full(len(self), np.inf),
        )


@dataclass(frozen=True, slots=True)
class Traffic:
    """What requests are drawn from.

    Attributes:
        arrivals: when.
        mix: where they leave.
        lengths: how long they are.
        urgent_share: of requests have high priority, the rest normal.
        timeout_s: after arrival; infinite for none.
        batch_share: of requests have several texts.
        batch_texts: how many.
        trace: stands for `mix` and `lengths` where it has them.
    """

    arrivals: Arrivals
    mix: ExitMix
    lengths: Lengths
    urgent_share: float = 0.0
    timeout_s: float = float("inf")
    batch_share: float = 0.0
    batch_texts: int = 64
    trace: Trace | None = None

    def draw(self, rate: float, num: int, seed: int) -> Workload:
        """Return `num` texts at `rate` per second.

        Lengths, exits and priorities depend on the seed alone: other rates and other arrivals
        bring the same requests.
        """
        when, what = np.random.default_rng((seed, 0)), np.random.default_rng((seed, 1))
        tokens = self.lengths.draw(num, what)
        exits = self.mix.draw(num, what)
        if self.trace is not None:
            tokens = np.resize(self.trace.tokens, num)
            exits = exits if self.trace.exits is None else np.resize(self.trace.exits, num)
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


def replayed(trace: Trace, mix: ExitMix, lengths: Lengths) -> Traffic:
    """Return a trace as traffic; exits are drawn from the mix where the trace has none."""
    return Traffic(Recorded(trace.arrival_s), mix, lengths, trace=trace)
