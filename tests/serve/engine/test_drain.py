"""Retry-After against what the engine's scheduler takes on a simulated device."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serve.engine.cost_model import SegmentCost
from tests.serve.support.simulated_engine import CPU, DEPTH, GPU, SimulatedEngine, rows_of

MIXES = {
    "short": [12] * 2000,
    "long": [512] * 250,
    "mixed": [8, 12, 16, 20, 500, 512] * 120,
    "one long among short": ([8] * 19 + [512]) * 60,
}


@pytest.mark.parametrize("cost", [CPU, GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize("lengths", MIXES.values(), ids=MIXES)
@pytest.mark.parametrize("depth", [1, 3, DEPTH])
@pytest.mark.parametrize("before", [1, DEPTH])
def test_the_stated_time_is_within_a_factor_of_two_of_the_drain_time(
    cost: SegmentCost, lengths: list[int], depth: int, before: int
) -> None:
    """From the first refusal on if rows go as deep as before; else once half are answered."""
    simulated = SimulatedEngine(cost)
    simulated.add(rows_of([16] * 1200, before))  # calm traffic before
    simulated.run()
    simulated.add(rows_of(lengths, depth))
    if depth != before:
        simulated.run(until_rows=len(lengths) // 2)
    stated_s, began_s = simulated.admission.seconds, simulated.now_s
    simulated.run()
    assert 0.5 <= stated_s / (simulated.now_s - began_s) <= 2


@pytest.mark.parametrize("slower", [0.3, 4.0])
def test_a_device_that_is_slower_or_faster_than_its_costs_is_seen_after_a_second(
    slower: float,
) -> None:
    simulated = SimulatedEngine(CPU, slower)
    simulated.add(rows_of([12, 300] * 1000, DEPTH))
    simulated.run(until_rows=1500)
    stated_s, began_s = simulated.admission.seconds, simulated.now_s
    simulated.run()
    assert 0.5 <= stated_s / (simulated.now_s - began_s) <= 2


@settings(max_examples=30)
@given(st.lists(st.integers(1, 512), min_size=100, max_size=400), st.sampled_from([CPU, GPU]))
def test_any_mixture_of_lengths_is_estimated_within_a_factor_of_two(
    lengths: list[int], cost: SegmentCost
) -> None:
    simulated = SimulatedEngine(cost)
    simulated.add(rows_of(lengths, DEPTH))
    stated_s = simulated.admission.seconds
    simulated.run()
    assert 0.5 <= stated_s / simulated.now_s <= 2
