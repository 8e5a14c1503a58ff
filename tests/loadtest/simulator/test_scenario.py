import math
from collections.abc import Callable

import numpy as np
import pytest

from loadtest.simulator.arrivals import Bursts
from loadtest.simulator.device import Device
from loadtest.simulator.record import Record, figures
from loadtest.simulator.scenario import COMPLETION, CONTENDERS, WHOLE, Scenario
from loadtest.simulator.workload import Traffic
from serve.engine.cost_model import SegmentCost
from serve.engine.scheduler import BatchLimits
from tests.loadtest.simulator.conftest import TICK_S

LIMITS = BatchLimits(max_rows=8, max_tokens=400)
contenders = pytest.mark.parametrize("contender", CONTENDERS)

Make = Callable[..., Traffic]


def simulate(contender: str, traffic: Traffic, device: Device, rate: float, num: int = 1) -> Record:
    work = traffic.draw(rate / TICK_S, num, seed=1)
    return CONTENDERS[contender](work, device, LIMITS, lambda num: None)


@contenders
def test_a_lone_request_takes_the_sum_of_its_segments(
    contender: str, device: Device, make_traffic: Make
) -> None:
    traffic = make_traffic(exits="fixed:3", lengths="20")
    arrival_s = traffic.draw(0.001 / TICK_S, 1, seed=1).arrival_s[0]
    record = simulate(contender, traffic, device, rate=0.001)
    segments = 4 if contender == WHOLE else 3
    assert record.answered_s[0] - arrival_s == pytest.approx(segments * 120 * TICK_S)
    assert record.layers == [segments]
    assert record.busy_s == pytest.approx(segments * 120 * TICK_S)


@contenders
def test_saturated_throughput_is_a_full_batch_over_its_time(
    contender: str, device: Device, make_traffic: Make
) -> None:
    scenario = Scenario(device, LIMITS, num_requests=800, seed=1, bound_times=5)
    traffic = make_traffic(exits="never", lengths="20")
    # All lengths equal and no row leaves: full batches of 8 rows through 4 segments, no joining.
    assert scenario.capacity(contender, traffic) == pytest.approx(8 / (4 * (100 + 8 * 20)) / TICK_S)


def test_batches_shrink_as_rows_leave(device: Device, make_traffic: Make) -> None:
    traffic = make_traffic(exits="weights:1,1,0,0", lengths="20")
    work = traffic.draw(1, 8, seed=2).all_at_once()
    record = CONTENDERS[COMPLETION](work, device, LIMITS, lambda num: None)
    staying = int((work.exits == 2).sum())
    assert 0 < staying < 8
    assert record.batch_rows == {8: 1, staying: 1}
    assert record.busy_s == pytest.approx((100 + 160 + 100 + 20 * staying) * TICK_S)
    assert sorted(set(record.answered_s)) == pytest.approx([260 * TICK_S, record.busy_s])


@contenders
@pytest.mark.parametrize(
    "arrivals", [None, Bursts(burst_s=500 * TICK_S)], ids=["poisson", "bursts"]
)
@pytest.mark.parametrize("rate", [0.005, 0.02, 0.2])
def test_every_request_is_answered_once_where_it_leaves(
    contender: str, arrivals: Bursts | None, rate: float, device: Device, make_traffic: Make
) -> None:
    traffic = make_traffic(arrivals=arrivals, urgent_share=0.2)
    record = simulate(contender, traffic, device, rate, num=400)
    work = traffic.draw(rate / TICK_S, 400, seed=1)
    assert record.answers == [1] * 400
    assert record.layers == ([4] * 400 if contender == WHOLE else work.exits.tolist())
    alone_s = (100 + work.tokens) * TICK_S
    layers = np.array(record.layers)
    assert (np.array(record.answered_s) - work.arrival_s >= layers * alone_s * (1 - 1e-9)).all()
    assert max(record.batch_rows) <= LIMITS.max_rows


@contenders
def test_deadlines_are_kept_as_well_as_segments_allow(
    contender: str, device: Device, make_traffic: Make
) -> None:
    traffic = make_traffic(timeout_s=1500 * TICK_S)
    work = traffic.draw(0.05 / TICK_S, 400, seed=1)
    record = simulate(contender, traffic, device, rate=0.05, num=400)
    assert record.answers == [1] * 400
    answered = np.array(record.answered_s) >= 0
    assert 0 < answered.sum() < 400
    latency_s = (np.array(record.answered_s) - work.arrival_s)[answered]
    # What is late leaves before its next segment, for which each depth may have to wait its turn.
    batch_s = (100 + LIMITS.max_tokens) * TICK_S
    assert latency_s.max() <= 1500 * TICK_S + 2 * 4 * batch_s


@contenders
def test_the_same_seed_gives_the_same_figures(
    contender: str, device: Device, make_traffic: Make
) -> None:
    traffic = make_traffic()
    first, again, other = (
        Scenario(device, LIMITS, 300, seed, 5).simulate(contender, traffic, 0.02 / TICK_S)
        for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_urgent_requests_wait_less(device: Device, make_traffic: Make) -> None:
    traffic = make_traffic(urgent_share=0.2)
    work = traffic.draw(0.05 / TICK_S, 400, seed=1)
    urgent = work.priority == work.priority.min()
    for contender in CONTENDERS:
        record = simulate(contender, traffic, device, rate=0.05, num=400)
        latency_s = np.array(record.answered_s) - work.arrival_s
        assert latency_s[urgent].mean() < latency_s[~urgent].mean() / 2, contender


def test_the_highest_rate_within_the_bound_keeps_it_and_little_more_breaks_it(
    device: Device, make_traffic: Make
) -> None:
    scenario = Scenario(device, LIMITS, num_requests=1000, seed=1, bound_times=5)
    traffic = make_traffic()
    capacity = scenario.capacity(COMPLETION, traffic)
    rate = scenario.sustainable(COMPLETION, traffic, capacity)
    bound_ms = scenario.bound_s(traffic.draw(1, 1000, 1)) * 1000
    assert 0.1 * capacity < rate < capacity
    assert scenario.simulate(COMPLETION, traffic, rate).p99_ms <= bound_ms
    assert scenario.simulate(COMPLETION, traffic, rate + 0.011 * capacity).p99_ms > bound_ms
    hopeless = Scenario(device, LIMITS, num_requests=200, seed=1, bound_times=0.5)
    assert hopeless.sustainable(WHOLE, traffic, 0.02 / TICK_S) == 0


def test_a_lost_or_repeated_request_is_noticed(make_traffic: Make) -> None:
    work = make_traffic().draw(1, 2, seed=1)
    record = Record.of(2)
    record.run(1, 5, 5)
    record.answer(0, 10.0, 1)
    with pytest.raises(RuntimeError, match="exactly once"):
        figures("x", work, record, 1.0)
    record.answer(1, 11.0, 1)
    assert figures("x", work, record, 10.0).unanswered == 0
    record.answer(1, 12.0, 1)
    with pytest.raises(RuntimeError, match="exactly once"):
        figures("x", work, record, 1.0)


def test_batch_forming_pays_no_padding_that_costs_more_than_a_launch(make_traffic: Make) -> None:
    dear = Device("padding is dear", (SegmentCost(1.0, 1.0),) * 4, 0.0, 0.0, 0.0)
    traffic = make_traffic(exits="never")
    work = traffic.draw(1.0, 400, seed=3).all_at_once()
    record = CONTENDERS[WHOLE](work, dear, LIMITS, lambda num: None)
    assert record.padded_tokens < 1.05 * record.num_tokens
    assert math.isclose(record.num_tokens, work.tokens.sum())


def test_rates_change_when_requests_come_but_not_what_they_are(make_traffic: Make) -> None:
    traffic = make_traffic(urgent_share=0.5)
    slow, fast, other = (
        traffic.draw(rate, 100, seed) for rate, seed in ((1.0, 1), (2.0, 1), (1.0, 2))
    )
    for name in ("tokens", "exits", "priority"):
        assert (getattr(slow, name) == getattr(fast, name)).all()
        assert (getattr(slow, name) != getattr(other, name)).any()
    assert slow.arrival_s == pytest.approx(2 * fast.arrival_s)
    assert (slow.arrival_s != other.arrival_s).all()
