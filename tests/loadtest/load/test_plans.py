"""How many users there are, and when their requests are due."""

import random
from collections import Counter
from collections.abc import Callable
from itertools import islice, pairwise
from typing import NamedTuple

import numpy as np
import pytest

from loadtest.load.arrivals import Arrivals, due_times
from loadtest.load.plans import Limits, Ramp, Reading, Spike, Steady


class Second(NamedTuple):
    """What a server does in a second."""

    requests: float
    ms: int = 10
    failed: float = 0.0  # share


def ramp(serves: Callable[[int, int], Second], most_users: int = 64, **options: float) -> Ramp:
    """Run a ramp to its end on a server, of users and the seconds it has run -> `Second`."""
    now_s, requests, failures, times = 0, 0.0, 0.0, Counter[int]()

    def read() -> Reading:
        return Reading(now_s, round(requests), round(failures), dict(times))

    plan = Ramp(1, 2.0, 8.0, Limits(500.0, 0.01, most_users), read, **options)
    while (users := plan.users_at(now_s)) is not None:
        done = serves(users, now_s)
        requests, failures = requests + done.requests, failures + done.failed * done.requests
        times[done.ms] += round(done.requests)
        now_s += 1
    return plan


def test_steady_load_ends_with_its_time_and_spike_is_the_middle_fifth() -> None:
    steady, spike = Steady(8, 10.0), Spike(4, 10.0, factor=10.0)
    assert [steady.users_at(s) for s in (0, 9.9, 10.0)] == [8, 8, None]
    assert Steady(8, None).users_at(1e6) == 8
    assert [spike.users_at(s) for s in (0, 3.9, 4.0, 5.9, 6.0, 9.9)] == [4, 4, 40, 40, 4, 4]
    assert spike.users_at(10.0) is None


@pytest.mark.parametrize(
    ("serves", "most_users", "users", "reason", "knee"),
    [
        (
            lambda users, _: Second(min(100, 25 * users)),
            64,
            [1, 2, 4, 8, 16],
            "throughput no longer rises: 100/s at best after 100/s",
            4,
        ),
        (
            lambda users, _: Second(25 * users, failed=0.02 * (users > 2)),
            64,
            [1, 2, 4],
            "2.0% of the requests failed",
            2,
        ),
        (
            lambda users, _: Second(25 * users, ms=700 if users > 2 else 10),
            64,
            [1, 2, 4],
            "p99 was 700 ms, above 500",
            2,
        ),
        (lambda *_: Second(25), 2, [1, 2], "2 users are the most", 1),
        (
            lambda users, _: Second(25 * users),
            4,
            [1, 2, 4],
            "4 users are the most, though throughput was still rising",
            4,
        ),
        (lambda *_: Second(25, failed=0.5), 64, [1], "50.0% of the requests failed", None),
    ],
)
def test_ramp_ends_when_the_server_is_saturated_and_has_a_knee(
    serves: Callable[[int, int], Second],
    most_users: int,
    users: list[int],
    reason: str,
    knee: int | None,
) -> None:
    plan = ramp(serves, most_users)
    assert [step.users for step in plan.steps] == users
    assert plan.reason == reason
    found = plan.knee()
    assert (found.users if found else None) == knee


def test_a_step_counts_what_lies_between_its_readings() -> None:
    (step,) = ramp(lambda _, s: Second(50, 10 if s < 7 else 900, 0.1 * (s == 3)), 1).steps
    assert (step.per_second, step.failed) == (pytest.approx(49, rel=0.05), pytest.approx(1 / 60))
    assert (step.p50_ms, step.p99_ms) == (10.0, 900.0)


def test_ramp_waits_for_replicas_before_it_ends() -> None:
    """The server adds a replica 40 s after its load was too high, and no third one."""
    busy = Counter[str]()

    def serves(users: int, _: int) -> Second:
        busy["s"] += users >= 8
        return Second(min(100 if busy["s"] < 40 else 200, 25 * users))

    steps = ramp(serves, 256, scale_up_s=45.0).steps
    rates = {1: 25, 2: 50, 4: 100, 8: 100, 16: 200, 32: 200, 64: 200}
    assert {step.users: round(step.per_second) for step in steps} == rates


def test_ramp_of_an_open_loop_says_what_was_offered() -> None:
    steps = ramp(lambda users, _: Second(30 * users), 2, rate_per_user=30.0).steps
    assert [step.offered for step in steps] == [30.0, 60.0]


@pytest.mark.parametrize(("pattern", "spread"), [("constant", 0.0), ("poisson", 0.02)])
def test_gaps_have_the_mean_and_the_spread_of_their_pattern(
    pattern: Arrivals, spread: float
) -> None:
    times = list(islice(due_times(pattern, 50.0, 5.0, random.Random(1)), 20_001))
    gaps = np.array([late - early for early, late in pairwise(times)])
    assert times[0] >= 5.0
    assert gaps.min() >= 0
    assert (gaps.mean(), gaps.std()) == (pytest.approx(0.02, 0.03), pytest.approx(spread, 0.03))


def test_constant_streams_do_not_begin_together() -> None:
    draw = random.Random(3)
    firsts = {next(due_times("constant", 1.0, 0.0, draw)) for _ in range(8)}
    assert len(firsts) == 8
    assert all(0 <= first < 1 for first in firsts)
