"""Rules tried on a recording, and figures with their intervals."""

import numpy as np
import pytest

from models.experiments.sections.sampled import Sampled
from models.experiments.sections.tried import Tried, threshold_at
from models.quality.points import STATIC
from serve.rules import EntropyRule
from tests.support.recordings import margins, noisy


def test_metric_at_a_depth_lies_between_the_two_nearest_rules() -> None:
    recorded = noisy("single_label")
    right = recorded.right
    assert right is not None
    second, third = right[1].mean(), right[2].mean()
    found = Tried(recorded, {}).at(STATIC, 3.0)  # of exits at layers 2 and 4
    assert found is not None
    assert found.value == pytest.approx((second + third) / 2)


def test_depth_that_no_rule_of_a_family_reaches_has_no_figure() -> None:
    strict = [EntropyRule(threshold=0.01), EntropyRule(threshold=0.02)]
    assert Tried(noisy("single_label"), {"strict": strict}).at("strict", 1.0) is None


def test_interval_of_a_difference_is_of_the_same_drawn_texts() -> None:
    tried = Tried(noisy("single_label"), {})
    last = tried.of(tried.points[STATIC][-1])
    gap = last - tried.full
    assert (gap.value, *gap.interval) == (0, 0, 0)
    assert not gap.shown
    assert tried.full.interval.low < tried.full.value < tried.full.interval.high


def test_figure_is_shown_with_its_interval_in_hundredths() -> None:
    values = np.array([0.5, *np.linspace(0.4, 0.6, 1001)])
    assert Sampled(values).text() == "50.00 (40.50 to 59.50)"
    assert Sampled(values).shown


def test_change_of_no_text_has_the_exact_bound_in_place_of_an_interval() -> None:
    none, some = Sampled(np.zeros(1001)), Sampled(np.array([-0.01, *np.linspace(-0.02, 0, 1001)]))
    assert none.change(408) == "0 of 408: at most 0.73 %"
    assert none.change(277) == "0 of 277: at most 1.08 %"
    assert some.change(408) == "-1.00 (-1.95 to -0.05)"


def test_threshold_is_the_loosest_that_runs_the_wanted_layers() -> None:
    recorded = margins([[0.1, 9], [0.5, 9], [3, 9], [6, 9]], [1, 1, 1, 1])

    def layers(threshold: float) -> float:
        exits = recorded.taken(EntropyRule(threshold=threshold)).exits
        return float(np.array(recorded.traits.exits)[exits].mean())

    found = threshold_at(recorded, lambda t: EntropyRule(threshold=t), 3.0, 0.7)
    assert layers(found) == 3.0  # two of four leave at layer 2
    assert layers(found + 1e-3) < 3.0
