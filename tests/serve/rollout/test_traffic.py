"""What is counted of the requests of an arm."""

import pytest

from serve.errors import Cancelled, DeadlineExceeded, Overloaded, UnknownProfile
from serve.policy.rollout import ArmOf
from serve.rollout.traffic import LEAST_TEXTS, ArmTraffic


@pytest.mark.parametrize(
    ("status", "code", "seconds", "counted"),
    [
        (200, "", 0.04, (1, 0, 1, 0)),
        (200, "", 0.06, (1, 0, 1, 1)),
        (500, "internal", 0.06, (1, 1, 0, 0)),
        (504, DeadlineExceeded.code, 0.01, (0, 0, 0, 0)),
        (504, DeadlineExceeded.code, 0.06, (0, 0, 1, 1)),
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


def test_no_client_of_several_counts_for_more_than_all_others() -> None:
    traffic = ArmTraffic(ArmOf("one", "candidate"))
    assert traffic.takes("alone", 10_000)  # nothing else would ever be known
    traffic.taken()
    for _ in range(LEAST_TEXTS):
        assert all(traffic.takes(honest, 1) for honest in ("one", "other"))
    assert traffic.takes("flood", 2 * LEAST_TEXTS)
    assert not traffic.takes("flood", 1)
    traffic.taken()
    assert all(traffic.takes("flood", 1) for _ in range(LEAST_TEXTS))
    assert not traffic.takes("flood", 1)
