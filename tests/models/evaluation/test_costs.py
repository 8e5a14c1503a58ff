"""What rows cost by where they leave."""

import numpy as np

from models.evaluation.costs import RowCost, TimeCost
from serve.classifier.exit_costs import ExitCosts
from serve.rules import EntropyRule, LayerRule, PatienceRule, compile_rule
from tests.support.traits import two_labels

TRAITS = two_labels((1, 2, 3))
FROM_FIRST = compile_rule(EntropyRule(threshold=0.1), TRAITS)


def test_a_row_pays_for_its_layers_and_for_every_exit_that_it_was_asked_at() -> None:
    run = np.array([[10.0, 20.0], [20.0, 40.0], [30.0, 60.0]])
    cost = RowCost(run, np.array([[1.0, 1.0], [2.0, 2.0], [4.0, 4.0]]))
    from_second = compile_rule(EntropyRule(threshold=0.1, min_layer=2), TRAITS)
    at_third = compile_rule(LayerRule(layer=3), TRAITS)
    assert cost.of(np.array([2, 1]), FROM_FIRST).tolist() == [37, 43]
    assert cost.of(np.array([2, 1]), from_second).tolist() == [36, 42]
    assert cost.of(np.array([2, 2]), at_third).tolist() == [34, 64]


def test_milliseconds_are_those_that_the_server_expects() -> None:
    costs = ExitCosts((0.001, 0.002, 0.004), visit_s=0.0001, slow_visit_s=0.0005)
    cost, exits = TimeCost(costs), np.array([0, 2, 2])
    np.testing.assert_allclose(cost.of(exits, FROM_FIRST), [1.1, 7.3, 7.3])
    # Rules that remember earlier exits are asked the slow way.
    patient = compile_rule(PatienceRule(patience=1), TRAITS)
    np.testing.assert_allclose(cost.of(exits, patient), [1.5, 8.5, 8.5])
