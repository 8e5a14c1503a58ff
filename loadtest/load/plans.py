"""How the number of users changes over a run, as arithmetic of the time passed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

_SPIKE = (0.4, 0.6)  # begin and end, as shares of the run
_SETTLE = 0.25  # share of a step before it is measured
# A ramp ends when so many steps together have gained less than this.
_LEAST_GAIN, _PATIENCE = 0.05, 2
# The knee is the smallest load with this share of the best throughput.
_KNEE_SHARE = 0.9


class Reading(NamedTuple):
    """What Locust has counted so far."""

    at_s: float  # when, by any clock
    requests: int  # all, failed ones included
    failures: int
    times: Mapping[int, int]  # milliseconds, rounded as Locust does -> number of requests


class Step(NamedTuple):
    """One load, held for a while."""

    users: int
    offered: float | None  # requests per second that were due; None in a closed loop
    per_second: float  # answered without failure
    p50_ms: float
    p99_ms: float
    failed: float  # share of the requests

    @classmethod
    def between(cls, users: int, offered: float | None, first: Reading, last: Reading) -> "Step":
        """Return what happened between two readings."""
        requests, failures = last.requests - first.requests, last.failures - first.failures
        passed_s = max(last.at_s - first.at_s, 1e-9)
        times = {ms: count - first.times.get(ms, 0) for ms, count in last.times.items()}
        p50_ms, p99_ms = _quantile(times, 0.5), _quantile(times, 0.99)
        failed = failures / requests if requests else 0.0
        return cls(users, offered, (requests - failures) / passed_s, p50_ms, p99_ms, failed)


class Limits(NamedTuple):
    """A ramp ends above these: p99, share of failures, number of users."""

    p99_ms: float
    failed: float
    users: int


class Plan(Protocol):
    """Decides how many users there are."""

    def users_at(self, passed_s: float) -> int | None:
        """Return how many users there should be now; None ends the run."""
        ...


@dataclass(frozen=True)
class Steady:
    """A constant number of users; without an end if `seconds` is None."""

    users: int
    seconds: float | None

    def users_at(self, passed_s: float) -> int | None:
        return self.users if self.seconds is None or passed_s < self.seconds else None


@dataclass(frozen=True)
class Spike:
    """Many more users for the middle fifth of the run."""

    users: int
    seconds: float
    factor: float

    def users_at(self, passed_s: float) -> int | None:
        if passed_s >= self.seconds:
            return None
        start, end = (share * self.seconds for share in _SPIKE)
        return round(self.users * self.factor) if start <= passed_s < end else self.users


@dataclass
class Ramp:
    """More and more users, until the server is saturated."""

    users: int  # of the current step
    growth: float  # load of a step over the last one's
    step_s: float  # length of a step; the first quarter of each is not measured
    limits: Limits  # when the ramp ends
    read: Callable[[], Reading]  # returns what has been counted so far
    rate_per_user: float | None = None  # in an open loop
    # How long a step that would end the ramp is held before it is measured again.
    scale_up_s: float = 0.0
    steps: list[Step] = field(default_factory=list)
    reason: str | None = None  # why the ramp has ended
    _began_s: float = 0.0
    _first: Reading | None = None
    _held_s: float = 0.0  # how long this step has been held

    def users_at(self, passed_s: float) -> int | None:
        if self.reason:
            return None
        in_step_s = passed_s - self._began_s
        if self._first is None and in_step_s >= _SETTLE * self.step_s:
            self._first = self.read()
        if self._first is not None and in_step_s >= self.step_s:
            self._end_step(self._first, passed_s)
        return None if self.reason else self.users

    def _end_step(self, first: Reading, passed_s: float) -> None:
        offered = self.rate_per_user * self.users if self.rate_per_user else None
        self.steps.append(Step.between(self.users, offered, first, self.read()))
        reason, self._first = saturated(self.steps, self.limits), None
        if reason and not self._held_s and self.scale_up_s:
            # The server may add a replica now.
            self.steps.pop()
            self._held_s = self.scale_up_s
            self._began_s = passed_s + self.scale_up_s
            return
        self.reason, self._held_s, self._began_s = reason, 0.0, passed_s
        if not reason:
            more = max(self.users + 1, round(self.users * self.growth))
            self.users = min(more, self.limits.users)

    def knee(self) -> Step | None:
        """Return the smallest load with nearly the best throughput, among those in the limits."""
        most = self.limits
        good = [s for s in self.steps if s.failed <= most.failed and s.p99_ms <= most.p99_ms]
        best = max((step.per_second for step in good), default=0.0)
        return next((step for step in good if step.per_second >= _KNEE_SHARE * best), None)


def saturated(steps: Sequence[Step], limits: Limits) -> str | None:
    """Return why a ramp ends after these steps, or None if it goes on."""
    last = steps[-1]
    if last.failed > limits.failed:
        return f"{last.failed:.1%} of the requests failed"
    if last.p99_ms > limits.p99_ms:
        return f"p99 was {last.p99_ms:.0f} ms, above {limits.p99_ms:g}"
    rates = [step.per_second for step in steps]
    best, newest = max(rates[:-_PATIENCE], default=0.0), max(rates[-_PATIENCE:])
    if len(steps) > _PATIENCE and newest < best * (1 + _LEAST_GAIN):
        return f"throughput no longer rises: {newest:.0f}/s at best after {best:.0f}/s"
    if last.users < limits.users:
        return None
    rises = len(steps) > 1 and rates[-1] >= max(rates[:-1]) * (1 + _LEAST_GAIN)
    rising = ", though throughput was still rising" if rises else ""
    return f"{last.users} users are the most{rising}"


def _quantile(times: Mapping[int, int], share: float) -> float:
    """Return the smallest time that this share of the requests did not exceed; 0 for none."""
    wanted, passed = share * sum(times.values()), 0
    for ms in sorted(times):
        passed += times[ms]
        if passed >= wanted and passed:
            return float(ms)
    return 0.0
