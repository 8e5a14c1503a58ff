"""How many exits rows may pass before somebody looks at the clock."""

import math

import numpy as np
import pytest

from serve.engine.cost_model import CostModel
from serve.engine.runner import ASKED
from serve.engine.undisturbed import UNDISTURBED_S, in_time

DEPTH = 6
GAPS = np.array([ASKED] * (DEPTH - 1) + [0], np.float32)


def warmed_up() -> CostModel:
    """Return costs of 6 ms a segment for 500 tokens, and 0.1 ms for 10, as the warm-up found."""
    costs = CostModel(DEPTH)
    for _ in range(100):
        for index in range(DEPTH):
            costs.observe(index, 1, 500, 0.006)
            costs.observe(index, 1, 10, 0.0001)
    costs.anchor()
    return costs


def passed(costs: CostModel, deadline_s: float, num_tokens: int = 500) -> int:
    """Return how many segments run before the clock is looked at, which shows 0."""
    gaps = in_time(GAPS, costs, (0, 1, num_tokens), deadline_s, lambda: 0.0)
    return 1 + int(np.flatnonzero(gaps == 0)[0])


@pytest.mark.parametrize(
    ("deadline_s", "of_long", "of_short"),
    [(math.inf, 3, DEPTH), (1.0, 3, DEPTH), (0.013, 2, DEPTH), (0.001, 1, DEPTH), (-1.0, 1, 1)],
)
def test_run_ends_before_a_deadline_and_before_others_have_waited_long(
    deadline_s: float, of_long: int, of_short: int
) -> None:
    assert UNDISTURBED_S == 0.02
    assert passed(warmed_up(), deadline_s) == of_long
    assert passed(warmed_up(), deadline_s, num_tokens=10) == of_short


def test_short_texts_that_fare_better_than_at_warm_up_promise_long_ones_nothing() -> None:
    costs, before = warmed_up(), passed(warmed_up(), 0.013)
    for _ in range(2000):
        for index in range(DEPTH):
            costs.observe(index, 1, 10, 0.00003)
    costs.refit()
    assert costs.segment_s(0, 1, 500) < 0.003, "they seem to"
    assert passed(costs, 0.013) == before
    assert passed(costs, math.inf) > passed(warmed_up(), math.inf), "without a promise"


def test_machine_that_is_slower_than_at_warm_up_is_believed() -> None:
    costs = warmed_up()
    for _ in range(2000):
        for index in range(DEPTH):
            costs.observe(index, 1, 500, 0.02)
    costs.refit()
    assert passed(costs, 0.013) == 1
