"""The users and load shapes, for this package's command and for Locust's own.

`locust -f loadtest/load/locustfile.py --host http://127.0.0.1:8000`; the web page is on port 8089.

In a closed loop a user sends a request when its last answer has come. In an open loop a user is a
stream: it sends requests when they are due, each in a greenlet of its own, and counts their time
from then.
"""

import random
import time
from pathlib import Path
from typing import Any, ClassVar

import gevent
from gevent.pool import Group
from locust import FastHttpUser, LoadTestShape, constant_pacing, events, task
from locust.contrib.fasthttp import ResponseContextManager
from locust.exception import CatchResponseError

from loadtest.http.client import Json, json_headers
from loadtest.load.arrivals import due_times
from loadtest.load.figures import ramp_figures
from loadtest.load.options import KINDS, Kind, add_options, set_rate_per_user
from loadtest.load.plans import Limits, Plan, Ramp, Reading, Spike, Steady
from loadtest.load.report import ramp_text
from loadtest.load.samples import LoggedRequest, Outcome
from loadtest.load.texts import Example, load_texts, made_up

_PATH = "/v1/classify"
_RETRY_AFTER_S = 0.2  # if the server does not say
_FINISH_S = 30.0
_DEFAULT_SECONDS = 60.0


class ApiUser(FastHttpUser):
    """Sends requests of all kinds, each as often as `--weights` says."""

    connection_timeout = 10.0
    texts: ClassVar[tuple[Example, ...]] = ()
    outstanding: ClassVar[Group] = Group()

    def __init__(self, environment: Any) -> None:
        self._options = options = environment.parsed_options
        self._open = options.arrivals != "closed"
        self._per_user = options.rate_per_user or 0.0
        self._headers = json_headers()
        self._kinds = [KINDS[name] for name in options.weights]
        self.network_timeout = options.timeout
        # The most connections; they are opened as needed.
        self.concurrency = options.most_outstanding if self._open else 1
        super().__init__(environment)
        if not ApiUser.texts:
            file = options.texts
            ApiUser.texts = load_texts(Path(file), options.column) if file else made_up()

    def on_start(self) -> None:
        if self._open:
            now_s, draw = time.perf_counter(), random.Random()
            self._due = due_times(self._options.arrivals, self._per_user, now_s, draw)

    def wait_time(self) -> float:
        """Pause so that a closed loop keeps its rate, if it has one."""
        if self._open or not self._per_user:
            return 0.0
        pause: float = constant_pacing(1 / self._per_user)(self)
        return pause

    @task
    def classify(self) -> None:
        """Send one request: now, or when it is due."""
        (kind,) = random.choices(self._kinds, [*self._options.weights.values()])
        if not self._open:
            self._request(kind, time.perf_counter())
            return
        due_s = next(self._due)
        gevent.sleep(max(0.0, due_s - time.perf_counter()))
        if len(self.outstanding) < self._options.most_outstanding:
            self.outstanding.spawn(self._request, kind, due_s)
        else:
            self._report_not_sent(kind)

    def _request(self, kind: Kind, due_s: float) -> None:
        """Send one request; any outcome but a result for every text is a failure."""
        examples = random.choices(self.texts, k=self._options.batch_texts if kind.several else 1)
        logged = LoggedRequest(examples, late_ms=1e3 * (time.perf_counter() - due_s))
        texts = [example.inputs for example in examples]
        wish = self._options.exit or kind.wish()
        body = {"inputs": texts if kind.several else texts[0]} | ({"exit": wish} if wish else {})
        with self._send(kind, body, logged) as response:
            # Locust knows neither when the request was due nor the earlier tries.
            response.request_meta["response_time"] = 1e3 * (time.perf_counter() - due_s)
            outcome = logged.outcome
            if outcome is not None and outcome.problem:
                response.failure(outcome.problem)

    def _send(self, kind: Kind, body: Json, logged: LoggedRequest) -> ResponseContextManager:
        """Send the request, and again after a transient failure while `--retries` allow."""
        left = self._options.retries
        while True:
            response = self.client.post(
                _PATH,
                json=body,
                headers=self._headers,
                name=kind.name,
                catch_response=True,
                context={"logged": logged},
            )
            logged.outcome = outcome = _outcome(response, len(logged.examples))
            if not outcome.problem or not left or not outcome.transient:
                return response
            logged.earlier.append(outcome.problem)
            left -= 1
            gevent.sleep(outcome.retry_after_s or _RETRY_AFTER_S)

    def _report_not_sent(self, kind: Kind) -> None:
        """Count a request that was due while too many others waited."""
        problem = f"not sent: {len(self.outstanding)} requests were waiting"
        logged = LoggedRequest([], late_ms=0.0, outcome=Outcome(0, problem), sent=False)
        self.environment.events.request.fire(
            request_type="POST",
            name=kind.name,
            response_time=0.0,
            response_length=0,
            exception=CatchResponseError(problem),
            context={"logged": logged},
        )


def _outcome(response: ResponseContextManager, num_texts: int) -> Outcome:
    if response.status_code == 0:
        # The response has all attributes of Locust's ErrorResponse.
        return Outcome(0, f"no answer: {response.error}")  # type: ignore[attr-defined]
    return Outcome.of(response.status_code, response.content or b"", response.headers, num_texts)


class ChosenShape(LoadTestShape):
    """The shape that `--shape` names, with Locust's own number of users and run time.

    Locust asks once a second how many users there should be. It ignores its run time if there is a
    shape, so this class ends the run.
    """

    use_common_options: ClassVar[bool] = True
    plan: Plan | None = None

    def reset_time(self) -> None:
        super().reset_time()
        self.plan = None

    def tick(self) -> tuple[int, float] | None:
        """Return users and how many may be started a second; None at the end."""
        if self.plan is None:
            self.plan = self._planned()
        users = self.plan.users_at(self.get_run_time())
        if users is None:
            if isinstance(self.plan, Ramp):
                print(ramp_text(ramp_figures(self.plan)), flush=True)
            return None
        return users, self._options.spawn_rate or float(max(users, self.get_current_user_count()))

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
            per_user, held_s = options.rate_per_user, options.scale_up_seconds or 0.0
            step_s = options.step_seconds
            return Ramp(users, options.growth, step_s, limits, self._read, per_user, held_s)
        if options.shape == "spike":
            return Spike(users, seconds or _DEFAULT_SECONDS, options.spike_factor)
        return Steady(users, seconds)

    def _read(self) -> Reading:
        assert self.runner is not None
        total = self.runner.stats.total
        times = dict(total.response_times)
        return Reading(time.monotonic(), total.num_requests, total.num_failures, times)


def finish(**_: object) -> None:
    """Wait for answers that are still outstanding when the streams have ended."""
    ApiUser.outstanding.join(_FINISH_S)


events.init_command_line_parser.add_listener(add_options)
events.test_stop.add_listener(finish)
