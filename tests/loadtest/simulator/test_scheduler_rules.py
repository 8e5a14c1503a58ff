"""The scheduler against batches that no row joins, on simulations that repeat exactly."""

import pytest

from loadtest.simulator.exit_mixes import read_mix
from loadtest.simulator.presets import PRESETS
from loadtest.simulator.scenario import COMPLETION, ENGINE, Scenario
from loadtest.simulator.workload import Traffic
from serve.engine.scheduler import BatchLimits

TRAFFIC = Traffic(read_mix("deebert:5", 12))


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("load", [0.8, 0.95])
def test_the_engine_answers_as_many_in_time_as_batches_that_run_to_completion(
    preset: str, load: float
) -> None:
    here = Scenario(PRESETS[preset](12), BatchLimits(), num_requests=4000, seed=0, bound_times=5)
    rate = load * here.capacity(COMPLETION, TRAFFIC)
    ours, theirs = (
        (here.latencies_s(name, TRAFFIC, rate) <= here.bound_s(TRAFFIC)).mean()
        for name in (ENGINE, COMPLETION)
    )
    assert ours >= 0.97 * theirs
