from loadtest.load.plans import Ramp, Spike, Steady
from loadtest.load.saturation import Limits, Reading


class Counter:
    """A server that answers 100 requests a second, however many ask."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def read(self) -> Reading:
        requests = round(100 * self.now_s)
        return Reading(self.now_s, requests, 0, {5: requests})


def test_steady_load_ends_with_its_time_and_spike_is_the_middle_fifth() -> None:
    steady, spike = Steady(8, 10.0), Spike(4, 10.0, factor=10.0)
    assert [steady.users_at(s) for s in (0, 9.9, 10.0)] == [8, 8, None]
    assert Steady(8, None).users_at(1e6) == 8
    assert [spike.users_at(s) for s in (0, 3.9, 4.0, 5.9, 6.0, 9.9)] == [4, 4, 40, 40, 4, 4]
    assert spike.users_at(10.0) is None


def test_ramp_doubles_until_throughput_no_longer_rises() -> None:
    counter = Counter()
    plan = Ramp(2, 2.0, 4.0, Limits(500.0, 0.01, 256), counter.read)
    seen = []
    while (users := plan.users_at(counter.now_s)) is not None:
        seen.append(users)
        counter.now_s += 1.0
    assert sorted(set(seen)) == [2, 4, 8]
    assert [step.users for step in plan.steps] == [2, 4, 8]
    assert all(step.per_second == 100 for step in plan.steps)
    assert plan.reason == "throughput no longer rises: 100/s at best after 100/s"


def test_ramp_waits_for_replicas_before_it_ends() -> None:
    """The server adds a replica 40 s after its load was too high, and no third one."""
    served, now_s, seen = [0.0], 0.0, []

    def read() -> Reading:
        return Reading(now_s, round(served[0]), 0, {5: round(served[0])})

    plan = Ramp(1, 2.0, 8.0, Limits(500.0, 0.01, 256), read, scale_up_s=45.0)
    while (users := plan.users_at(now_s)) is not None:
        seen.append(users)
        busy_s = len([each for each in seen if each >= 8])
        served[0] += min(100.0 if busy_s < 40 else 200.0, 25.0 * users)
        now_s += 1.0
    assert [(step.users, round(step.per_second)) for step in plan.steps] == [
        (1, 25),
        (2, 50),
        (4, 100),
        (8, 100),
        (16, 200),
        (32, 200),
        (64, 200),
    ]
    assert plan.reason == "throughput no longer rises: 200/s at best after 200/s"


def test_ramp_of_an_open_loop_says_what_was_offered() -> None:
    counter = Counter()
    plan = Ramp(1, 2.0, 2.0, Limits(500.0, 0.01, 1), counter.read, rate_per_user=30.0)
    while plan.users_at(counter.now_s) is not None:
        counter.now_s += 0.5
    assert [step.offered for step in plan.steps] == [30.0]
    assert plan.reason == "1 users are the most"
