"""What the scheduler's rules are for, on small simulations that repeat to the last digit."""

from dataclasses import replace

import pytest

from loadtest.simulator.arrivals import Poisson
from loadtest.simulator.exit_mixes import read_mix
from loadtest.simulator.lengths import read_lengths
from loadtest.simulator.presets import PRESETS
from loadtest.simulator.scenario import COMPLETION, ENGINE, Scenario
from loadtest.simulator.workload import Traffic
from serve.engine.scheduler import BatchLimits

TRAFFIC = Traffic(Poisson(), read_mix("deebert:5", 12), read_lengths("sst2-like"))


def scenario(preset: str) -> Scenario:
    return Scenario(PRESETS[preset](12), BatchLimits(), num_requests=4000, seed=0, bound_times=5)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("load", [0.8, 0.95])
def test_the_engine_answers_as_many_in_time_as_batches_that_run_to_completion(
    preset: str, load: float
) -> None:
    here = scenario(preset)
    rate = load * here.capacity(COMPLETION, TRAFFIC)
    ours, theirs = (here.simulate(name, TRAFFIC, rate) for name in (ENGINE, COMPLETION))
    assert ours.within_bound >= 0.97 * theirs.within_bound


def test_lone_texts_do_not_wait_for_others_large_requests() -> None:
    here = scenario("cpu-like")
    mixed = replace(TRAFFIC, batch_share=0.02, batch_texts=64)
    rate = 0.6 * here.capacity(COMPLETION, mixed)
    ours, theirs = (here.simulate(name, mixed, rate) for name in (ENGINE, COMPLETION))
    assert ours.lone_p99_ms < 0.8 * theirs.lone_p99_ms
