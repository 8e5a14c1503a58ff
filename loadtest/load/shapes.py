"""The load's shape for Locust, which asks once a second how many users there should be."""

import time
from typing import Any, ClassVar

from locust import LoadTestShape

from loadtest.load.figures import RampResult, ramp_table
from loadtest.load.options import set_rate_per_user
from loadtest.load.plans import Plan, Ramp, Spike, Steady
from loadtest.load.saturation import Limits, Reading, knee

_DEFAULT_SECONDS = 60.0


class ChosenShape(LoadTestShape):
    """The shape that `--shape` names, with Locust's own number of users and run time.

    Locust ignores its run time if there is a shape, so this class ends the run.
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
            if ramp := self.ramp_result():
                print(ramp_table(ramp), flush=True)
            return None
        return users, self._options.spawn_rate or float(max(users, self.get_current_user_count()))

    def ramp_result(self) -> RampResult | None:
        """Return the steps so far, if the shape is a ramp."""
        plan = self.plan
        if not isinstance(plan, Ramp):
            return None
        return RampResult(tuple(plan.steps), knee(plan.steps, plan.limits), plan.reason)

    @property
    def _options(self) -> Any:
        assert self.runner is not None
        return self.runner.environment.parsed_options

    def _planned(self) -> Plan:
        options = self._options
        set_rate_per_user(options)
        users, seconds = options.num_users or 1, options.run_time
        if options.shape == "ramp":
            limits = Limits(options.limit_p99_ms, options.limit_failures, options.most_users)
            per_user = options.rate_per_user
            held_s = options.scale_up_seconds or 0.0
            return Ramp(
                users, options.growth, options.step_seconds, limits, self._read, per_user, held_s
            )
        if options.shape == "spike":
            return Spike(users, seconds or _DEFAULT_SECONDS, options.spike_factor)
        return Steady(users, seconds)

    def _read(self) -> Reading:
        assert self.runner is not None
        total = self.runner.stats.total
        times = dict(total.response_times)
        return Reading(time.monotonic(), total.num_requests, total.num_failures, times)
