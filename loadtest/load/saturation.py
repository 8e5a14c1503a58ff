"""The steps of a ramp, when the server is saturated, and the ramp's knee."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

# A ramp ends when so many steps together have gained less than this.
_LEAST_GAIN = 0.05
_PATIENCE = 2
# The knee is the smallest load with this share of the best throughput.
_KNEE_SHARE = 0.9


class Reading(NamedTuple):
    """What Locust has counted so far."""

    at_s: float  # when, by any clock
    requests: int  # all, failed ones included
    failures: int
    times: Mapping[int, int]  # milliseconds, rounded as Locust does -> number of requests


@dataclass(frozen=True)
class Step:
    """One load, held for a while."""

    users: int
    offered: float | None  # requests per second that were due; None in a closed loop
    per_second: float  # answered without failure
    p50_ms: float  # median latency
    p99_ms: float  # 99th percentile
    failed: float  # share of the requests


class Limits(NamedTuple):
    """A ramp ends above these: p99, share of failures, number of users."""

    p99_ms: float
    failed: float
    users: int


def step_between(users: int, offered: float | None, first: Reading, last: Reading) -> Step:
    """Return what happened between two readings."""
    requests = last.requests - first.requests
    failures = last.failures - first.failures
    passed_s = max(last.at_s - first.at_s, 1e-9)
    times = {ms: count - first.times.get(ms, 0) for ms, count in last.times.items()}
    return Step(
        users=users,
        offered=offered,
        per_second=(requests - failures) / passed_s,
        p50_ms=_quantile(times, 0.5),
        p99_ms=_quantile(times, 0.99),
        failed=failures / requests if requests else 0.0,
    )


def saturated(steps: Sequence[Step], limits: Limits) -> str | None:
    """Return why a ramp ends after these steps, or None if it goes on."""
    last = steps[-1]
    if last.failed > limits.failed:
        return f"{last.failed:.1%} of the requests failed"
    if last.p99_ms > limits.p99_ms:
        return f"p99 was {last.p99_ms:.0f} ms, above {limits.p99_ms:g}"
    best = max((step.per_second for step in steps[:-_PATIENCE]), default=0.0)
    newest = max(step.per_second for step in steps[-_PATIENCE:])
    if len(steps) > _PATIENCE and newest < best * (1 + _LEAST_GAIN):
        return f"throughput no longer rises: {newest:.0f}/s at best after {best:.0f}/s"
    if last.users < limits.users:
        return None
    rising = ", though throughput was still rising" if _rises(steps) else ""
    return f"{last.users} users are the most{rising}"


def knee(steps: Sequence[Step], limits: Limits) -> Step | None:
    """Return the smallest load with nearly the best throughput, among steps within the limits."""
    good = [s for s in steps if s.failed <= limits.failed and s.p99_ms <= limits.p99_ms]
    best = max((step.per_second for step in good), default=0.0)
    return next((step for step in good if step.per_second >= _KNEE_SHARE * best), None)


def _rises(steps: Sequence[Step]) -> bool:
    """Return whether the last step had more throughput than all before it."""
    *before, last = steps
    best = max((step.per_second for step in before), default=last.per_second)
    return last.per_second >= best * (1 + _LEAST_GAIN)


def _quantile(times: Mapping[int, int], share: float) -> float:
    """Return the smallest time that this share of the requests did not exceed; 0 for none."""
    wanted = share * sum(times.values())
    passed = 0
    for ms in sorted(times):
        passed += times[ms]
        if passed >= wanted and passed:
            return float(ms)
    return 0.0
