"""How the number of users changes over a run, as arithmetic of the time passed."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from loadtest.load.saturation import Limits, Reading, Step, saturated, step_between

Read: TypeAlias = Callable[[], Reading]

_SPIKE = (0.4, 0.6)  # begin and end, as shares of the run
_SETTLE = 0.25  # share of a step before it is measured


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
    read: Read  # returns what has been counted so far
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
        self.steps.append(step_between(self.users, offered, first, self.read()))
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
