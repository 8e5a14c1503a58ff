from dataclasses import replace

import pytest

from loadtest.load.saturation import Limits, Reading, Step, knee, saturated, step_between

LIMITS = Limits(p99_ms=500.0, failed=0.01, users=64)


def step(users: int, per_second: float) -> Step:
    return Step(users, None, per_second, p50_ms=10.0, p99_ms=50.0, failed=0.0)


RISING = [step(1, 50), step(2, 95), step(4, 150)]


def test_step_counts_only_what_lies_between_two_readings() -> None:
    first = Reading(10.0, 100, 1, {10: 90, 50: 10})
    last = Reading(14.0, 300, 21, {10: 190, 50: 108, 900: 2})
    found = step_between(8, None, first, last)
    assert (found.per_second, found.failed) == (45.0, 0.1)
    assert (found.p50_ms, found.p99_ms) == (10.0, 50.0)


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        (RISING[:1], None),
        (RISING, None),
        ([*RISING, step(8, 140)], None),
        (
            [*RISING, step(8, 152), step(16, 155)],
            "throughput no longer rises: 155/s at best after 150/s",
        ),
        ([*RISING, replace(step(8, 300), failed=0.02)], "2.0% of the requests failed"),
        ([*RISING, replace(step(8, 300), p99_ms=700.0)], "p99 was 700 ms, above 500"),
        ([step(64, 900)], "64 users are the most"),
        ([step(32, 895), step(64, 900)], "64 users are the most"),
        (
            [step(32, 800), step(64, 900)],
            "64 users are the most, though throughput was still rising",
        ),
    ],
)
def test_ramp_ends_when_the_server_is_saturated(steps: list[Step], reason: str | None) -> None:
    assert saturated(steps, LIMITS) == reason


def test_knee_is_the_smallest_load_within_the_limits_with_nearly_the_best_throughput() -> None:
    steps = [*RISING, step(8, 180), step(16, 190)]
    assert knee(steps, LIMITS) == steps[3]
    broken = replace(step(8, 900), failed=0.5)
    assert knee([*RISING, broken], LIMITS) == RISING[2]
    assert knee([broken], LIMITS) is None
