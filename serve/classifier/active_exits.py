"""Which exits are used: each one saves layers for rows that leave, and costs every row a visit.

A bundle may carry a head after every layer. Where few rows are likely to leave, running on to the
next exit without asking is cheaper. `cheapest_exits` finds the exits with the least expected time,
from what all exits gave for the calibration data and from what segments cost on this machine.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import TypeAlias

import numpy as np

from serve.classifier.exit_costs import ExitCosts
from serve.rules import ExitRule
from serve.rules.replay import Recording

Active: TypeAlias = tuple[int, ...]  # indices of exits, ascending; the last exit is among them

# 2 ** 11 subsets, since the last exit is always used. With more exits, they are dropped one by one.
MAX_EXACT = 12


@dataclass(frozen=True, slots=True)
class Candidate:
    """What is known of the exits to choose from.

    Attributes:
        recording: what all exits gave for the calibration data.
        costs: measured on this machine.
    """

    recording: Recording
    costs: ExitCosts

    def expected_s(self, rule: ExitRule, active: Active) -> float:
        """Return the mean seconds per text if only these exits (indices) are used."""
        chosen = list(active)
        taken = self.recording.at(chosen).taken(rule)
        until_s = np.cumsum(self.costs.segment_s)[chosen]
        visits_s = self.costs.visit_s * np.arange(1, len(chosen) + 1)
        return float((until_s + visits_s)[taken.exits].mean())


def cheapest_exits(
    candidate: Candidate, rule: ExitRule, allowed: Callable[[Active], bool]
) -> Active:
    """Return the indices of the exits under which the rule's answers take the least time.

    Exact for up to `MAX_EXACT` exits. With more, exits are dropped one at a time for as long as
    that saves time.

    Args:
        candidate: the exits to choose from.
        rule: the rule that most requests use.
        allowed: tells whether a choice is possible; using all exits must be.
    """
    every = tuple(range(len(candidate.recording.traits.exits)))
    if len(every) <= MAX_EXACT:
        # Among choices of the same cost, the one with most exits serves other rules better.
        largest_first = sorted(filter(allowed, _subsets(every)), key=len, reverse=True)
        return min(largest_first, key=lambda active: candidate.expected_s(rule, active))
    return _drop_in_turn(every, allowed, lambda active: candidate.expected_s(rule, active))


def _subsets(every: Active) -> Iterator[Active]:
    """Yield all subsets that hold the last exit."""
    for size in range(len(every)):
        for chosen in combinations(every[:-1], size):
            yield (*chosen, every[-1])


def _drop_in_turn(
    every: Active, allowed: Callable[[Active], bool], expected_s: Callable[[Active], float]
) -> Active:
    best, best_s = every, expected_s(every)
    while True:
        fewer = [tuple(i for i in best if i != dropped) for dropped in best[:-1]]
        usable = [active for active in fewer if allowed(active)]
        next_best = min(usable, key=expected_s, default=best)
        next_s = expected_s(next_best)
        if next_s >= best_s:
            return best
        best, best_s = next_best, next_s
