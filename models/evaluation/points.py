"""What rules make of a data file: where texts leave, at what cost, and how good the answers are."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.evaluation.benchmark_scores import benchmark_scores
from models.evaluation.costs import LAYERS, MS, Costs, TimeCost
from models.evaluation.rule_families import rule_families
from models.evaluation.scores import Statistics, main_metric, of_sums, statistics
from models.evaluation.subject import Subject
from models.recorded import Recorded
from serve.policy.ladder import Certificate
from serve.policy.resolution import nearest
from serve.policy.served_ladder import ServedLadder
from serve.policy.target import TargetChoice
from serve.rules import ExitRule, LayerRule, NeverRule
from serve.rules.replay import Taken

STATIC, PROFILES, LADDER = "static", "profiles", "ladder"


class Point(NamedTuple):
    """One rule on one data file.

    Attributes:
        family: its family's name, or `static`, `profiles` or `ladder`.
        rule: the rule.
        layers: (rows,) that each row runs.
        statistics: (rows, sums) of the main metric.
        value: the main metric.
        metrics: all metrics by name; of taggers, whose entities take long to count, the main one.
        exit_shares: (exits,) share of the rows that leave at each exit.
        costs: mean cost of a row, by unit.
        disagreement: share of rows with another answer than full depth's; None for a regression.
        name: of a profile.
        certificates: of a rung, and of a profile that has become one.
    """

    family: str
    rule: ExitRule
    layers: NDArray[np.float64]
    statistics: Statistics
    value: float
    metrics: Mapping[str, float]
    exit_shares: list[float]
    costs: Mapping[str, float]
    disagreement: float | None
    name: str
    certificates: tuple[Certificate, ...]


class Trial:
    """Tries rules on a recording."""

    def __init__(self, recorded: Recorded, costs: Costs) -> None:
        assert recorded.gold is not None
        self._recorded, self._costs, self._gold = recorded, costs, recorded.gold
        traits = recorded.traits
        self._at_exits = np.stack([statistics(traits, self._gold, x) for x in recorded.logits])

    def point(
        self,
        family: str,
        rule: ExitRule,
        name: str = "",
        certificates: tuple[Certificate, ...] = (),
    ) -> Point:
        """Return what a rule makes of the recording."""
        recorded, taken = self._recorded, self._recorded.taken(rule)
        compiled, agrees = recorded.compiled(rule), recorded.agrees(taken)
        costs = {unit: cost.of(taken.exits, compiled) for unit, cost in self._costs.items()}
        left_at = np.bincount(taken.exits, minlength=len(recorded.logits))
        found = self._statistics(taken)
        main = main_metric(recorded.traits)
        value = float(of_sums(main, found.sum(axis=0)))
        return Point(
            family=family,
            rule=rule,
            layers=costs[LAYERS],
            statistics=found,
            value=value,
            metrics=self._metrics(taken) or {main: value},
            exit_shares=(left_at / recorded.num_rows).tolist(),
            costs={unit: float(each.mean()) for unit, each in costs.items()},
            disagreement=None if agrees is None else float((~agrees).mean()),
            name=name,
            certificates=certificates,
        )

    def _metrics(self, taken: Taken) -> dict[str, float]:
        traits = self._recorded.traits
        return (
            {} if traits.task == "token" else benchmark_scores(traits, self._gold, taken.deciding)
        )

    def _statistics(self, taken: Taken) -> Statistics:
        if self._recorded.by_the_exits(taken):
            found: Statistics = self._at_exits[taken.exits, np.arange(self._recorded.num_rows)]
            return found
        return statistics(self._recorded.traits, self._gold, taken.deciding)


def points_of(subject: Subject, recorded: Recorded, costs: Costs) -> dict[str, list[Point]]:
    """Return all points, by family; `static`, one for each exit, is always there."""
    trial, layers = Trial(recorded, costs), recorded.traits.exits
    static: list[ExitRule] = [*(LayerRule(layer=layer) for layer in layers[:-1]), NeverRule()]
    families = {STATIC: static, **rule_families(recorded)}
    points = {name: [trial.point(name, r) for r in rules] for name, rules in families.items()}
    profiles = served_profiles(subject, recorded, costs)
    points[PROFILES] = [trial.point(PROFILES, *profile) for profile in profiles]
    rungs = subject.ladder.rungs if subject.ladder else ()
    points[LADDER] = [trial.point(LADDER, rung.rule, "", rung.certificates) for rung in rungs]
    return {name: found for name, found in points.items() if found}


def served_profiles(
    subject: Subject, recorded: Recorded, costs: Costs
) -> Iterator[tuple[ExitRule, str, tuple[Certificate, ...]]]:
    """Yield rule, name and certificates of the policy's profiles, as the server follows them.

    Targets become rungs; where times are not known, they are left out.
    """
    times, ladder = costs.get(MS), None
    if isinstance(times, TimeCost):
        until, noise = times.exit_costs.until_exits_ms, times.exit_costs.noise
        traits, temperatures = recorded.traits, recorded.temperatures
        ladder = ServedLadder(traits, temperatures, until, subject.ladder, noise=noise)
    for name, wish in subject.profiles.items():
        if not isinstance(wish, TargetChoice):
            yield subject.limits.applied_to(wish), name, ()
        elif ladder:
            flag = subject.flags.get(name) if wish.target.decides else None
            known = ladder.deciding(flag) if flag else ladder
            rung = nearest(wish.target, known.rungs(subject.limits)).rung
            yield rung.rule, name, rung.certificates


def pareto_front(points: list[Point], unit: str) -> list[Point]:
    """Return the points that no other one beats in the metric at equal or lower cost, cheap first.

    They were chosen on the rows on which they are measured, which flatters them.
    """
    front: list[Point] = []
    for point in sorted(points, key=lambda p: (p.costs[unit], -p.value)):
        if not front or point.value > front[-1].value + 1e-12:
            front.append(point)
    return front
