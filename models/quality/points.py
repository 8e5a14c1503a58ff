"""What rules make of a data file: where texts leave, at what cost, and how good the answers are."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from models.quality.costs import LAYERS, MS, Costs, TimeCost
from models.quality.model import Model
from models.quality.recorded import Recorded
from models.quality.rule_families import rule_families
from models.quality.scores import Statistics, benchmark_scores, main_metric, of_sums, statistics
from serve.policy.ladder import Certificate
from serve.policy.resolution import nearest
from serve.policy.served_ladder import ServedLadder
from serve.policy.target import TargetChoice
from serve.rules import ExitRule, LayerRule, NeverRule
from serve.rules.replay import Taken
from serve.rules.small import SmallRule
from serve.rules.traits import Traits

STATIC, PROFILES, LADDER = "static", "profiles", "ladder"

SAMPLES, LEVEL = 1000, 0.95
# Samples that are drawn at once, so that large files take little memory.
_CHUNK = 50
_NOT_SAMPLED = np.zeros(0)
# Depths at which a family of rules is compared with the static curve.
_GRID = 101


class Point(NamedTuple):
    """One rule on one data file.

    Attributes:
        family: its family's name, or `static`, `profiles` or `ladder`.
        rule: the rule.
        layers: (rows,) that each row runs.
        statistics: (rows, sums) of the main metric.
        value: the main metric.
        metrics: all metrics by name; of taggers, whose entities take long to count, the main one.
        exit_shares: (layers,) share of the rows that leave at each of `Traits.layers`.
        costs: mean cost of a row, by unit.
        disagreement: share of rows with another answer than full depth's; None for a regression.
        name: of a profile.
        certificates: of a rung, and of a profile that has become one.
        depths: (1 + samples,) mean layers of all rows, then of each of the bootstrap's samples.
        values: (1 + samples,) the main metric of the same; see `resampled`.
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
    depths: NDArray[np.float64] = _NOT_SAMPLED
    values: NDArray[np.float64] = _NOT_SAMPLED

    @property
    def interval(self) -> "Interval":
        """The bootstrap interval of the main metric."""
        return Interval.of(self.values[1:])


class Trial:
    """Tries rules on a recording."""

    def __init__(self, recorded: Recorded, costs: Costs, data: str = "") -> None:
        """Keep what every exit says; `main_metric` tells what `data` decides."""
        assert recorded.gold is not None
        self._recorded, self._costs, self._gold = recorded, costs, recorded.gold
        self._metric = main_metric(recorded.traits, data)
        self._at_exits = np.stack([self._sums(logits) for logits in recorded.logits])

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
        value = float(of_sums(found.sum(axis=0)))
        metrics = {self._metric: value}
        if recorded.traits.task != "token":
            metrics = benchmark_scores(recorded.traits, self._gold, taken.deciding)
        return Point(
            family=family,
            rule=rule,
            layers=costs[LAYERS],
            statistics=found,
            value=value,
            metrics=metrics,
            exit_shares=(left_at / recorded.num_rows).tolist(),
            costs={unit: float(each.mean()) for unit, each in costs.items()},
            disagreement=None if agrees is None else float((~agrees).mean()),
            name=name,
            certificates=certificates,
        )

    def _statistics(self, taken: Taken) -> Statistics:
        if self._recorded.by_the_exits(taken):
            found: Statistics = self._at_exits[taken.exits, np.arange(self._recorded.num_rows)]
            return found
        return self._sums(taken.deciding)

    def _sums(self, logits: NDArray[np.float32]) -> Statistics:
        return statistics(self._recorded.traits, self._gold, logits, self._metric)


def points_of(
    model: Model, recorded: Recorded, costs: Costs, data: str = ""
) -> dict[str, list[Point]]:
    """Return all points, by family, with their samples; `static`, one for each layer, is there."""
    trial = Trial(recorded, costs, data)
    families = {STATIC: _static(recorded.traits), **rule_families(recorded)}
    points = {name: [trial.point(name, r) for r in rules] for name, rules in families.items()}
    profiles = served_profiles(model, recorded, costs)
    points[PROFILES] = [trial.point(PROFILES, *profile) for profile in profiles]
    rungs = model.ladder.rungs if model.ladder else ()
    points[LADDER] = [trial.point(LADDER, rung.rule, "", rung.certificates) for rung in rungs]
    sampled = iter(resampled([point for found in points.values() for point in found]))
    return {name: list(islice(sampled, len(found))) for name, found in points.items() if found}


def _static(traits: Traits) -> list[ExitRule]:
    """Return a rule for each of `Traits.layers`: every text that is judged there leaves there."""
    table = [] if traits.table_temperature is None else [NeverRule(table=0.0)]
    small = [
        NeverRule(small=SmallRule(threshold=0.0, min_layer=layer, max_layer=layer))
        for layer in (traits.small.exits if traits.small else ())
    ]
    exits = [LayerRule(layer=layer) for layer in traits.exits[:-1]]
    return [*table, *small, *exits, NeverRule()]


def served_profiles(
    model: Model, recorded: Recorded, costs: Costs
) -> Iterator[tuple[ExitRule, str, tuple[Certificate, ...]]]:
    """Yield rule, name and certificates of the policy's profiles, as the server follows them.

    Targets become rungs; where times are not known, they are left out.
    """
    times, ladder, limits = costs.get(MS), None, model.policy.limits
    if isinstance(times, TimeCost):
        until, noise = times.exit_costs.until_exits_ms, times.exit_costs.noise
        traits, temperatures = recorded.traits, recorded.temperatures
        ladder = ServedLadder(traits, temperatures, until, model.ladder, noise=noise)
    for name, wish in model.profiles.items():
        if not isinstance(wish, TargetChoice):
            yield limits.applied_to(wish), name, ()
        elif ladder:
            flag = model.policy.profile_flags.get(name) if wish.target.decides else None
            known = ladder.deciding(flag) if flag else ladder
            rung = nearest(wish.target, known.rungs(limits)).rung
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


class Interval(NamedTuple):
    """The middle 95 % of a figure over the bootstrap's samples."""

    low: float
    high: float

    @classmethod
    def of(cls, values: ArrayLike) -> "Interval":
        """Return the interval of (samples,) values."""
        tail = (1 - LEVEL) / 2
        low, high = np.quantile(np.asarray(values, np.float64), [tail, 1 - tail]).tolist()
        return cls(low, high)


def resampled(points: Sequence[Point], samples: int = SAMPLES, seed: int = 0) -> list[Point]:
    """Return points of the same rows with what the bootstrap's samples say of them.

    Each sample draws the same rows for all points.

    Args:
        points: all of the same main metric.
        samples: how many are drawn.
        seed: of the draws.
    """
    # (rows, points, sums and depth)
    joint = np.stack([np.column_stack([p.statistics, p.layers]) for p in points], axis=1)
    num_rows, flat = len(joint), joint.reshape(len(joint), -1)
    rng, sums = np.random.default_rng(seed), [flat.sum(axis=0, keepdims=True)]
    for start in range(0, samples, _CHUNK):
        size = min(_CHUNK, samples - start)
        drawn = rng.integers(num_rows, size=(size, num_rows)) + num_rows * np.arange(size)[:, None]
        often = np.bincount(drawn.ravel(), minlength=size * num_rows)
        sums.append(often.reshape(size, num_rows).astype(np.float64) @ flat)
    by_sample = np.concatenate(sums).reshape(1 + samples, *joint.shape[1:])
    depths, values = by_sample[..., -1] / num_rows, of_sums(by_sample[..., :-1])
    each = zip(points, depths.T, values.T, strict=True)
    return [point._replace(depths=d, values=v) for point, d, v in each]


class Gain(NamedTuple):
    """What a family of rules gains over stopping every text at the same layer.

    Attributes:
        mean: how far its curve lies above the static one, on average over the mean depths that it
            covers; of a metric from 0 to 1.
        interval: of the mean.
        area: between the curves, in metric times layers.
        depths: the family's lowest mean depth, and its highest.
    """

    mean: float
    interval: Interval
    area: float
    depths: tuple[float, float]

    @property
    def shown(self) -> bool:
        """Whether the data show a difference: the interval does not hold 0."""
        return not self.interval.low <= 0 <= self.interval.high


def gain(family: Sequence[Point], static: Sequence[Point]) -> Gain:
    """Return what a family of rules gains.

    The static curve runs straight from exit to exit: stopping some texts at one exit and the others
    at the next, at random, reaches the points between.

    Args:
        family: its points.
        static: one point for each exit.
    """
    # (1 + samples, points)
    curves = [
        np.stack([getattr(point, name) for point in points], axis=1)
        for points in (family, static)
        for name in ("depths", "values")
    ]
    low, high = float(curves[0][0].min()), float(curves[0][0].max())
    depths, each = np.linspace(low, high, _GRID), zip(*curves, strict=True)
    # (1 + samples, grid)
    gaps = np.stack([along(depths, x, y) - along(depths, *line) for x, y, *line in each])
    means = np.asarray(np.trapezoid(gaps, dx=1 / (_GRID - 1), axis=-1))
    return Gain(
        float(means[0]), Interval.of(means[1:]), float(means[0] * (high - low)), (low, high)
    )


def along(
    at: NDArray[np.float64], depths: NDArray[np.float64], values: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return a curve's values at some depths; its points may come in any order."""
    order = np.argsort(depths, kind="stable")
    return np.interp(at, depths[order], values[order])
