"""Which exits are used: each one used early saves layers, each one used in vain costs a visit.

A bundle may carry a head after every layer. Where no row is likely to leave, running on to the
next exit without asking is cheaper; `cheapest_exits` finds the subset with the least expected
time, from what the exits said of the calibration data and what segments cost here.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TypeAlias

import numpy as np

from serve.rules import ExitRule
from serve.rules.replay import Recording, exits_taken
from serve.rules.traits import Traits

Active: TypeAlias = tuple[int, ...]  # indices of exits, ascending; the last exit's is the last

# 2 ** 11 subsets, since the last exit is always used; beyond this, exits are given up one by one.
MAX_EXACT = 12


@dataclass(frozen=True, slots=True)
class ExitCosts:
    """What a lone text costs.

    Attributes:
        segment_s: (exits,) seconds from one exit to the next.
        visit_s: seconds for asking an exit: reading its logits, judging, calling again.
    """

    segment_s: tuple[float, ...]
    visit_s: float


@dataclass(frozen=True, slots=True)
class Candidate:
    """What is known of the exits to choose from.

    Attributes:
        traits: of the model with all its exits.
        temperatures: one per exit.
        recording: what the exits said of the calibration data.
        costs: measured on this machine.
    """

    traits: Traits
    temperatures: tuple[float, ...]
    recording: Recording
    costs: ExitCosts

    def expected_s(self, rule: ExitRule, active: Active) -> float:
        """Return the mean seconds per text if only these exits (indices) are used."""
        chosen = list(active)
        taken = exits_taken(
            self.recording[chosen],
            rule,
            replace(self.traits, exits=tuple(self.traits.exits[i] for i in chosen)),
            tuple(self.temperatures[i] for i in chosen),
        )
        until_s = np.cumsum(self.costs.segment_s)[chosen]
        visits_s = self.costs.visit_s * np.arange(1, len(chosen) + 1)
        return float((until_s + visits_s)[taken].mean())


def cheapest_exits(
    candidate: Candidate, rule: ExitRule, allowed: Callable[[Active], bool]
) -> Active:
    """Return the indices of the exits under which the rule's answers take the least time.

    Exact for up to `MAX_EXACT` exits; with more, exits are given up one at a time for as long
    as that saves time.

    Args:
        candidate: the exits to choose from.
        rule: what most requests use.
        allowed: whether a choice will do for other reasons; using all exits must.
    """
    every = tuple(range(len(candidate.traits.exits)))
    if len(every) <= MAX_EXACT:
        # Of equals the one with most exits, which serves other rules better.
        largest_first = sorted(filter(allowed, _subsets(every)), key=len, reverse=True)
        return min(largest_first, key=lambda active: candidate.expected_s(rule, active))
    return _give_up_in_turn(every, allowed, lambda active: candidate.expected_s(rule, active))


def _subsets(every: Active) -> Iterator[Active]:
    """Yield all subsets that hold the last exit."""
    for size in range(len(every)):
        for chosen in combinations(every[:-1], size):
            yield (*chosen, every[-1])


def _give_up_in_turn(
    every: Active, allowed: Callable[[Active], bool], expected_s: Callable[[Active], float]
) -> Active:
    best, best_s = every, expected_s(every)
    while True:
        fewer = [tuple(i for i in best if i != given_up) for given_up in best[:-1]]
        usable = [active for active in fewer if allowed(active)]
        next_best = min(usable, key=expected_s, default=best)
        next_s = expected_s(next_best)
        if next_s >= best_s:
            return best
        best, best_s = next_best, next_s
