"""What rules make of a data file: where texts leave, at what cost, and how good the answers are."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.evaluation.observation import Observation
from models.evaluation.row_statistics import Statistics
from models.evaluation.rule_families import rule_families
from models.evaluation.served_profiles import served_profiles
from serve.policy.ladder import Certificate
from serve.rules import ExitRule, LayerRule, NeverRule

STATIC, PROFILES, LADDER = "static", "profiles", "ladder"


class Point(NamedTuple):
    """One rule on one data file.

    Attributes:
        family: its family's name, or `static`, `profiles` or `ladder`.
        rule: the rule.
        exits: (rows,) where each row leaves, counted from 0.
        first_heard: the first exit that the rule asks.
        statistics: (rows, sums) of the main metric.
        disagreement: share of rows with another answer than full depth's; None for a regression.
        name: of a profile.
        certificates: of a rung, and of a profile that has become one.
    """

    family: str
    rule: ExitRule
    exits: NDArray[np.uint16]
    first_heard: int
    statistics: Statistics
    disagreement: float | None
    name: str = ""
    certificates: tuple[Certificate, ...] = ()

    def exit_shares(self, num_exits: int) -> list[float]:
        """Return the share of the rows that leave at each exit."""
        counts = np.bincount(self.exits, minlength=num_exits)
        return (counts / len(self.exits)).tolist()

    def costs(self, observed: Observation, unit: str) -> NDArray[np.float64]:
        """Return (rows,) the cost of each row."""
        return observed.costs[unit].of(self.exits.astype(np.intp), self.first_heard)

    def value(self, observed: Observation) -> float:
        """Return the main metric."""
        return float(observed.metric.of_sums(self.statistics.sum(axis=0)))


def points_of(observed: Observation) -> dict[str, list[Point]]:
    """Return all points, by family; `static`, one for each exit, is always there."""
    families: dict[str, list[ExitRule]] = {STATIC: _static(observed), **rule_families(observed)}
    points = {
        name: [_point(observed, name, rule) for rule in rules] for name, rules in families.items()
    }
    if profiles := served_profiles(observed):
        points[PROFILES] = [
            _point(observed, PROFILES, found.rule)._replace(
                name=name, certificates=found.certificates
            )
            for name, found in profiles.items()
        ]
    if ladder := observed.subject.ladder:
        points[LADDER] = [
            _point(observed, LADDER, rung.rule)._replace(certificates=rung.certificates)
            for rung in ladder.rungs
        ]
    return points


def pareto_front(points: list[Point], observed: Observation, unit: str) -> list[Point]:
    """Return the points that no other one beats in the metric at equal or lower cost, cheap first.

    They were chosen on the rows on which they are measured, which flatters them.
    """
    costs = np.array([point.costs(observed, unit).mean() for point in points])
    values = np.array([point.value(observed) for point in points])
    front, best = [], -np.inf
    for place in np.lexsort((-values, costs)).tolist():
        if values[place] > best + 1e-12:
            best = values[place]
            front.append(points[place])
    return front


def _static(observed: Observation) -> list[ExitRule]:
    layers = observed.traits.exits
    return [*(LayerRule(layer=layer) for layer in layers[:-1]), NeverRule()]


def _point(observed: Observation, family: str, rule: ExitRule) -> Point:
    taken = observed.taken(rule)
    differs = observed.disagrees(taken)
    return Point(
        family=family,
        rule=rule,
        exits=taken.exits.astype(np.uint16),
        first_heard=observed.first_heard(rule),
        statistics=observed.statistics_of(taken),
        disagreement=None if differs is None else float(differs.mean()),
    )
