"""The scheduler against batches of the whole model, on simulations that repeat exactly."""

import pytest

from loadtest.simulator.contenders import ENGINE, WHOLE, Scenario
from loadtest.simulator.devices import read_device
from loadtest.simulator.traffic import Traffic, read_mix

TRAFFIC = Traffic(read_mix("deebert:5", 12))


# The ratios of docs/benchmarks.md.
@pytest.mark.parametrize(
    ("preset", "ratio"), [("h100", 1.16), ("small-gpu-like", 1.85), ("cpu-like", 2.32)]
)
def test_the_saturated_engine_answers_so_many_times_what_the_whole_model_answers(
    preset: str, ratio: float
) -> None:
    device = read_device(preset, 12)
    here = Scenario(device, device.limits, num_requests=20_000, seed=0, bound_times=5)
    found = here.capacity(ENGINE, TRAFFIC) / here.capacity(WHOLE, TRAFFIC)
    assert found == pytest.approx(ratio, rel=0.01)
