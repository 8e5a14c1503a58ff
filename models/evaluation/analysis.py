"""All rules on one observation, with intervals, fronts and gains."""

from dataclasses import dataclass
from functools import cached_property

from models.evaluation.bootstrap import Interval, Resampled, resampled
from models.evaluation.costs import LAYERS
from models.evaluation.gain import Gain, gain
from models.evaluation.observation import Observation
from models.evaluation.operating_points import (
    LADDER,
    PROFILES,
    STATIC,
    Point,
    pareto_front,
    points_of,
)
from models.evaluation.rule_families import headline_family

_NO_FAMILIES = (STATIC, PROFILES, LADDER)


@dataclass(frozen=True)
class Analysis:
    """The rules of one observation.

    Attributes:
        observed: what was seen.
        points: by family.
    """

    observed: Observation
    points: dict[str, list[Point]]

    @classmethod
    def of(cls, observed: Observation) -> "Analysis":
        """Try every rule by replay."""
        return cls(observed, points_of(observed))

    @property
    def families(self) -> dict[str, list[Point]]:
        """The families of rules that make a curve, the one to judge by first."""
        names = [name for name in self.points if name not in _NO_FAMILIES]
        names.sort(key=lambda name: name != headline_family(self.observed))
        return {name: self.points[name] for name in names}

    @property
    def headline(self) -> str | None:
        """The family to judge by; None for a model with a single exit."""
        return next(iter(self.families), None)

    @cached_property
    def all_points(self) -> list[Point]:
        """The points of all families."""
        return [point for points in self.points.values() for point in points]

    def front(self, unit: str = LAYERS) -> list[Point]:
        """Return the best points of all rules, cheap first."""
        return pareto_front(self.all_points, self.observed, unit)

    def mean_cost(self, point: Point, unit: str) -> float:
        """Return the mean cost of a point's rows."""
        return float(point.costs(self.observed, unit).mean())

    def value(self, point: Point) -> float:
        """Return a point's main metric."""
        return point.value(self.observed)

    def interval(self, point: Point) -> Interval:
        """Return the bootstrap interval of a point's main metric."""
        return self._resampled.interval(self._places[id(point)])

    @cached_property
    def gains(self) -> dict[str, Gain]:
        """What each family gains over stopping every text at the same layer."""
        static = self._only(self.points[STATIC])
        return {name: gain(self._only(own), static) for name, own in self.families.items()}

    @cached_property
    def _places(self) -> dict[int, int]:
        return {id(point): place for place, point in enumerate(self.all_points)}

    @cached_property
    def _resampled(self) -> Resampled:
        return resampled(self.observed, self.all_points)

    def _only(self, points: list[Point]) -> Resampled:
        return self._resampled.only([self._places[id(point)] for point in points])
