"""What a recording's early exits are worth: quality at a depth, and depth at a loss."""

from typing import NamedTuple

import numpy as np

from models.quality.costs import LAYERS, layer_costs
from models.quality.points import Point, Trial
from models.quality.recorded import Recorded
from models.quality.rule_families import rule_families
from models.quality.scores import main_metric, score


class Within(NamedTuple):
    """A rule that was chosen on one half of the texts, on the other half.

    Attributes:
        layers: mean layers.
        disagreement: share of texts with another answer than at full depth.
    """

    layers: float
    disagreement: float


def by_exit(recorded: Recorded) -> list[float]:
    """Return the main metric of every exit when it answers all texts."""
    assert recorded.gold is not None
    traits, metric = recorded.traits, main_metric(recorded.traits)
    return [score(traits, recorded.gold, logits)[metric] for logits in recorded.logits]


def at_depth(recorded: Recorded, family: str, layers: float) -> float:
    """Return the main metric at a mean depth, between the two nearest thresholds of a family."""
    points = sorted((p.costs[LAYERS], p.value) for p in points_of_family(recorded, family))
    depths, values = zip(*points, strict=True)
    return float(np.interp(layers, depths, values))


def layers_within(recorded: Recorded, family: str, share: float) -> Within:
    """Return the mean depth of the rule that leaves earliest with at most so many other answers.

    It is chosen on one half of the texts and measured on the other, and the other way round.
    """
    rows = np.arange(recorded.num_rows)
    one, other = (recorded.of(rows[rows % 2 == side]) for side in (0, 1))
    found = [_chosen(one, other, family, share), _chosen(other, one, family, share)]
    return Within(*np.mean(found, axis=0).tolist())


def _chosen(tuning: Recorded, other: Recorded, family: str, share: float) -> Within:
    points = points_of_family(tuning, family)
    allowed = [p for p in points if p.disagreement is not None and p.disagreement <= share]
    rule = min(allowed, key=lambda p: p.costs[LAYERS]).rule  # never leaving is always allowed
    point = _trial(other).point(family, rule)
    assert point.disagreement is not None
    return Within(point.costs[LAYERS], point.disagreement)


def points_of_family(recorded: Recorded, family: str) -> list[Point]:
    """Return the points of one family of rules, from strict to loose."""
    tried = _trial(recorded)
    return [tried.point(family, rule) for rule in rule_families(recorded)[family]]


def _trial(recorded: Recorded) -> Trial:
    return Trial(recorded, {LAYERS: layer_costs(recorded.traits.exits, recorded.num_rows)})
