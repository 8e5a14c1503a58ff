"""What rows cost by where they leave."""

import numpy as np

from models.evaluation.costs import Cost
from models.evaluation.exit_times import cost_of
from serve.engine.cost_model import CostModel, SegmentCost


def test_a_row_pays_for_its_layers_and_for_every_exit_that_it_was_asked_at() -> None:
    run = np.array([[10.0, 20.0], [20.0, 40.0], [30.0, 60.0]])
    cost = Cost(run, np.array([[1.0, 1.0], [2.0, 2.0], [4.0, 4.0]]))
    assert cost.of(np.array([2, 1]), first_heard=0).tolist() == [37, 43]
    assert cost.of(np.array([2, 1]), first_heard=1).tolist() == [36, 42]
    assert cost.of(np.array([2, 2]), first_heard=2).tolist() == [34, 64]
    assert cost.at(1).tolist() == [22, 42]


def test_asking_exits_costs_what_a_run_that_asks_them_takes_longer() -> None:
    asked = CostModel.of([SegmentCost(fixed_s=0.002), SegmentCost(fixed_s=0.006)])
    unasked = CostModel.of([SegmentCost(fixed_s=0.007)])
    cost = cost_of([asked], [unasked], np.array([5, 9, 5]))
    stopped = cost.at(1)
    np.testing.assert_allclose(stopped, 7.0)
    dynamic = cost.of(np.array([1, 1, 1]), first_heard=0)
    np.testing.assert_allclose(dynamic, 8.0)
    # A quarter of the time is the first segment's.
    np.testing.assert_allclose(cost.at(0), 7.0 / 4)


def test_times_are_the_median_of_the_rounds() -> None:
    rounds = [CostModel.of([SegmentCost(fixed_s=s)]) for s in (0.001, 0.9, 0.002)]
    np.testing.assert_allclose(cost_of(rounds, rounds, np.array([5])).at(0), 2.0)
