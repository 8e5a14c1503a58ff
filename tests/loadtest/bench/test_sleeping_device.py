"""A GPU that sleeps, on a clock that only it moves."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from loadtest.bench import sleeping_device
from loadtest.bench.sleeping_device import Cost, DeviceTimes, SleepingDevice, SleepingSession
from serve.bundle.loader import Bundle
from serve.runtime.cuda_runner import CudaRunner

H100 = Path(sleeping_device.__file__).parent / "devices" / "h100.json"


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def perf_counter(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.mark.parametrize(
    ("issue", "busy"), [(1000.0, 1.0), (1.0, 1000.0)], ids=["issuing", "computing"]
)
def test_a_run_takes_what_the_host_or_the_device_takes_whichever_is_longer(
    half_bundle: Bundle,
    monkeypatch: pytest.MonkeyPatch,
    issue: float,
    busy: float,
) -> None:
    clock = Clock()
    monkeypatch.setattr(sleeping_device, "time", clock)
    layer, nothing = Cost(issue, busy), Cost(0.0, 0.0)
    times = DeviceTimes(layer, Cost(1.0, 1.0), nothing, nothing, copy=1.0, wait=2.0)
    device = SleepingDevice(times)
    chain = CudaRunner(
        half_bundle, "fp16", device, partial(SleepingSession, device=device, width=16)
    )
    ids = np.ones((3, 5), np.int64)
    began_s = clock.now_s
    output = chain.start(ids, ids, 0 * ids, until=len(chain) - 1)
    assert (clock.now_s - began_s < 1e-3) == (busy > issue), "the device is not waited for"
    assert len(output.logits) == 3
    assert clock.now_s - began_s == pytest.approx(4e-3, rel=0.01)


def test_the_h100s_times_are_there() -> None:
    times = DeviceTimes.read(H100)
    assert times.layer.per_token * 16_384 > times.layer.issue > times.layer.fixed
