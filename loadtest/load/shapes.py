"""The load's shape for Locust: it asks once a second how many users there should be."""

import time
from typing import Any, ClassVar

from locust import LoadTestShape

from loadtest.load.options import share_among_users
from loadtest.load.plans import Plan, Ramp, Spike, Steady
from loadtest.load.ramp_table import steps_text
from loadtest.load.saturation import Limits, Reading, knee

_DEFAULT_SECONDS = 60.0


class ChosenShape(LoadTestShape):
    """What `--shape` names, with Locust's own number of users and run time.

    Locust ignores its run time where there is a shape, so this one minds it.
    """

    use_common_options: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self.plan: Plan | None = None

    def reset_time(self) -> None:
        super().reset_time()
        self.plan = None

    def tick(self) -> tuple[int, float] | None:
        """Return users and how many may be started a second; None at the end."""
        if self.plan is None:
            self.plan = self._planned()
        users = self.plan.users_at(self.get_run_time())
        if users is None:
            self._tell()
            return None
        return users, self._options.spawn_rate or float(max(users, self.get_current_user_count()))

    @property
    def _options(self) -> Any:
        assert self.runner is not None
        return self.runner.environment.parsed_options

    def _planned(self) -> Plan:
        options = self._options
        share_among_users(options)
        users, seconds = options.num_users or 1, options.run_time
        if options.shape == "ramp":
            limits = Limits(options.limit_p99_ms, options.limit_failures, options.most_users)
            per_user = options.rate_per_user
            return Ramp(users, options.growth, options.step_seconds, limits, self._read, per_user)
        if options.shape == "spike":
            return Spike(users, seconds or _DEFAULT_SECONDS, options.spike_factor)
        return Steady(users, seconds)

    def _read(self) -> Reading:
        assert self.runner is not None
        total = self.runner.stats.total
        times = dict(total.response_times)
        return Reading(time.monotonic(), total.num_requests, total.num_failures, times)

    def _tell(self) -> None:
        if isinstance(self.plan, Ramp):
            found = knee(self.plan.steps, self.plan.limits)
            print(steps_text(self.plan.steps, found, self.plan.reason), flush=True)
