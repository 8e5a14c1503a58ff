import numpy as np
import pytest

from loadtest.simulator.contenders import CONTENDERS, ENGINE, WHOLE, Record, Scenario
from loadtest.simulator.devices import Device
from loadtest.simulator.traffic import Traffic, read_mix
from serve.engine.cost_model import SegmentCost
from serve.engine.scheduler import BatchLimits

TICK_S = 1e-5
# A segment of n tokens takes 100 + n ticks.
DEVICE = Device("easy", (SegmentCost(100 * TICK_S, TICK_S),) * 4)

LIMITS = BatchLimits(max_rows=8, max_tokens=400)
contenders = pytest.mark.parametrize("contender", CONTENDERS)


def make_traffic(exits: str = "uniform:1-4", tokens: int | None = None) -> Traffic:
    return Traffic(read_mix(exits, 4), tokens)


def simulate(contender: str, traffic: Traffic, rate: float, num: int = 1) -> Record:
    work = traffic.draw(rate / TICK_S, num, seed=1)
    return CONTENDERS[contender](work, DEVICE, LIMITS)


@contenders
def test_a_lone_request_takes_the_sum_of_its_segments(contender: str) -> None:
    traffic = make_traffic(exits="fixed:3", tokens=20)
    arrival_s = traffic.draw(0.001 / TICK_S, 1, seed=1).arrival_s[0]
    record = simulate(contender, traffic, rate=0.001)
    segments = 4 if contender == WHOLE else 3
    assert record.answered_s[0] - arrival_s == pytest.approx(segments * 120 * TICK_S)
    assert record.layers == [segments]


@contenders
@pytest.mark.parametrize("rate", [0.005, 0.02, 0.2])
def test_every_request_is_answered_once_where_it_leaves(contender: str, rate: float) -> None:
    traffic = make_traffic()
    record = simulate(contender, traffic, rate, num=400)
    work = traffic.draw(rate / TICK_S, 400, seed=1)
    assert record.layers == ([4] * 400 if contender == WHOLE else work.exits.tolist())
    alone_s = (100 + work.tokens) * TICK_S
    layers = np.array(record.layers)
    assert (np.array(record.answered_s) - work.arrival_s >= layers * alone_s * (1 - 1e-9)).all()


def test_the_highest_rate_within_the_bound_keeps_it_and_little_more_breaks_it() -> None:
    scenario = Scenario(DEVICE, LIMITS, num_requests=1000, seed=1, bound_times=5)
    traffic = make_traffic()
    capacity = scenario.capacity(ENGINE, traffic)
    rate = scenario.sustainable(ENGINE, traffic, capacity)
    assert 0.1 * capacity < rate < capacity
    bound_s = scenario.bound_s(traffic)
    for more, kept in ((0.0, True), (0.02 * capacity, False)):
        latency_s = scenario.latencies_s(ENGINE, traffic, rate + more)
        assert ((latency_s <= bound_s).mean() >= 0.99) == kept
    hopeless = Scenario(DEVICE, LIMITS, num_requests=200, seed=1, bound_times=0.5)
    assert hopeless.sustainable(WHOLE, traffic, 0.02 / TICK_S) == 0
