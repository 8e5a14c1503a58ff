"""Rules tried on a recording: their depths and their figures."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from models.experiments.figures import Figure
from models.quality.costs import LAYERS, Costs, layer_costs
from models.quality.points import SAMPLES, STATIC, Point, Trial, along, resampled
from models.quality.recorded import Recorded
from models.quality.rule_families import rule_families
from serve.rules import ExitRule, LayerRule, NeverRule

# Halvings of a threshold: more digits than float32 has.
_HALVINGS = 30


class Tried:
    """Families of rules on the same texts; all share the bootstrap's samples.

    Attributes:
        depth: layers of the model.
        points: by family; `static` has one for each exit.
    """

    def __init__(
        self,
        recorded: Recorded,
        families: Mapping[str, Sequence[ExitRule]],
        costs: Costs | None = None,
        samples: int = SAMPLES,
    ) -> None:
        """Try all rules.

        Args:
            recorded: with the correct answers.
            families: rules by name.
            costs: of the texts; None counts layers.
            samples: of the bootstrap; 0 where seeds make the intervals.
        """
        exits = recorded.traits.exits
        self.depth, self._num_texts = exits[-1], recorded.num_rows
        trial = Trial(recorded, {LAYERS: layer_costs(exits, recorded.num_rows), **(costs or {})})
        static = [*(LayerRule(layer=layer) for layer in exits[:-1]), NeverRule()]
        every = {STATIC: static, **families}
        points = [trial.point(name, rule) for name, rules in every.items() for rule in rules]
        self.points: dict[str, list[Point]] = {name: [] for name in every}
        for point in resampled(points, samples):
            self.points[point.family].append(point)

    @property
    def full(self) -> Figure:
        """The metric at full depth."""
        return self.of(self.points[STATIC][-1])

    def of(self, point: Point) -> Figure:
        """Return a point's metric."""
        return Figure(point.values, self._num_texts)

    def at(self, family: str, layers: float) -> Figure | None:
        """Return a family's metric at a mean depth; None if the family does not reach it.

        Between two of its rules, some texts follow the one and the others the other, at random.
        """
        own = self.points[family]
        depths = np.stack([point.depths for point in own], axis=1)
        if not depths[0].min() <= layers <= depths[0].max():
            return None
        each = zip(depths, np.stack([point.values for point in own], axis=1), strict=True)
        found = [along(np.array([layers]), depths, values)[0] for depths, values in each]
        return Figure(np.array(found), self._num_texts)


class Within(NamedTuple):
    """A rule that was chosen on one half of the texts, on the other half.

    Attributes:
        layers: mean layers.
        disagreement: share of texts with another answer than at full depth.
    """

    layers: float
    disagreement: float


def halves(recorded: Recorded) -> list[tuple[Recorded, Recorded]]:
    """Return the texts that choose and those that are measured: one half each, both ways."""
    rows = np.arange(recorded.num_rows)
    one, other = (recorded.of(rows[rows % 2 == side]) for side in (0, 1))
    return [(one, other), (other, one)]


def layers_within(recorded: Recorded, family: str, share: float) -> Within:
    """Return the mean depth of the rule that leaves earliest with at most so many other answers."""
    found = [_chosen(*each, family, share) for each in halves(recorded)]
    return Within(*np.mean(found, axis=0).tolist())


def _chosen(tuning: Recorded, other: Recorded, family: str, share: float) -> Within:
    points = Tried(tuning, {family: rule_families(tuning)[family]}, samples=0).points[family]
    allowed = [p for p in points if p.disagreement is not None and p.disagreement <= share]
    rule = min(allowed, key=lambda p: p.costs[LAYERS]).rule  # never leaving is always allowed
    (point,) = Tried(other, {family: [rule]}, samples=0).points[family]
    assert point.disagreement is not None
    return Within(point.costs[LAYERS], point.disagreement)


def threshold_at(
    recorded: Recorded, rule: Callable[[float], ExitRule], layers: float, most: float
) -> float:
    """Return the threshold with which texts run so many layers in the mean, or just more.

    Args:
        recorded: of the texts.
        rule: from a threshold; a higher one lets texts leave earlier.
        layers: wanted.
        most: a threshold with which texts run fewer layers.
    """
    exits, least = np.array(recorded.traits.exits), 0.0
    for _ in range(_HALVINGS):
        middle = (least + most) / 2
        if exits[recorded.taken(rule(middle)).exits].mean() >= layers:
            least = middle
        else:
            most = middle
    return least
