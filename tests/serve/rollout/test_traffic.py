"""What is counted of the requests of an arm."""

import pytest

from serve.errors import Cancelled, DeadlineExceeded, Overloaded, UnknownProfile
from serve.policy.rollout import ArmOf
from serve.rollout.traffic import ArmTraffic


@pytest.mark.parametrize(
    ("status", "code", "seconds", "counted"),
    [
        (200, "", 0.04, (1, 0, 1, 0)),
        (200, "", 0.06, (1, 0, 1, 1)),
        (500, "internal", 0.06, (1, 1, 0, 0)),
        (504, DeadlineExceeded.code, 0.01, (1, 1, 1, 1)),
        (422, UnknownProfile.code, None, (1, 1, 0, 0)),
        (499, Cancelled.code, 0.06, (0, 0, 1, 1)),
        (499, Cancelled.code, 0.04, None),
        (429, Overloaded.code, None, None),
    ],
)
def test_each_end_counts_for_the_bounds_that_it_speaks_of(
    status: int, code: str, seconds: float | None, counted: tuple[int, ...] | None
) -> None:
    traffic = ArmTraffic(ArmOf("one", "candidate", slow_ms=50.0))
    traffic.ended(status, code, seconds)
    found = traffic.taken()
    assert counted == (found and (found.requests, found.errors, found.timed, found.slow))
    assert traffic.taken() is None


def test_without_a_bound_clients_that_leave_are_not_counted() -> None:
    traffic = ArmTraffic(ArmOf("one", "candidate"))
    traffic.ended(Cancelled.status, Cancelled.code, 60.0)
    assert traffic.taken() is None
