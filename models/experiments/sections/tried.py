"""Rules tried on a recording: their depths and their figures, with intervals."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from models.experiments.sections.sampled import Sampled
from models.quality.costs import LAYERS, Costs, layer_costs
from models.quality.points import STATIC, Point, Trial, along, resampled
from models.quality.recorded import Recorded
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
    ) -> None:
        """Try all rules.

        Args:
            recorded: with the correct answers.
            families: rules by name.
            costs: of the texts; None counts layers.
        """
        exits = recorded.traits.exits
        self.depth = exits[-1]
        known = {LAYERS: layer_costs(exits, recorded.num_rows), **(costs or {})}
        trial = Trial(recorded, known)
        static = [*(LayerRule(layer=layer) for layer in exits[:-1]), NeverRule()]
        every = {STATIC: static, **families}
        sampled = resampled([trial.point(n, rule) for n, rules in every.items() for rule in rules])
        self.points: dict[str, list[Point]] = {
            name: [point for point in sampled if point.family == name] for name in every
        }

    @property
    def full(self) -> Sampled:
        """The metric at full depth."""
        return self.of(self.points[STATIC][-1])

    def of(self, point: Point) -> Sampled:
        """Return a point's metric."""
        return Sampled(point.values)

    def at(self, family: str, layers: float) -> Sampled | None:
        """Return a family's metric at a mean depth; None if the family does not reach it.

        Between two of its rules, some texts follow the one and the others the other, at random.
        """
        own = self.points[family]
        depths = np.stack([point.depths for point in own], axis=1)
        if not depths[0].min() <= layers <= depths[0].max():
            return None
        each = zip(depths, np.stack([point.values for point in own], axis=1), strict=True)
        found = [along(np.array([layers]), depths, values)[0] for depths, values in each]
        return Sampled(np.array(found))


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
