"""Locust users of the HTTP API, a class for each kind of request.

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
from locust import FastHttpUser, constant_pacing, events, task
from locust.contrib.fasthttp import ResponseContextManager
from locust.exception import CatchResponseError

from loadtest.http.client import Json, json_headers
from loadtest.load.arrivals import due_times
from loadtest.load.request_log import LoggedRequest, Outcome, outcome_of
from loadtest.load.texts import Example, load_texts, made_up

_PATH = "/v1/classify"
_RETRY_AFTER_S = 0.2  # if the server does not say
_FINISH_S = 30.0


class ApiUser(FastHttpUser):
    """The common part of all users; the subclasses fill the requests.

    Attributes:
        kind: name in the report.
        option: name in `--weights`.
    """

    abstract = True
    connection_timeout = 10.0
    kind = ""
    option = ""
    texts: ClassVar[tuple[Example, ...]] = ()
    outstanding: ClassVar[Group] = Group()

    def __init__(self, environment: Any) -> None:
        options = environment.parsed_options
        self._open = options.arrivals != "closed"
        self._per_user = options.rate_per_user or 0.0
        self._headers = json_headers()
        self.network_timeout = options.timeout
        # The most connections; they are opened as needed.
        self.concurrency = options.most_outstanding if self._open else 1
        super().__init__(environment)
        if not ApiUser.texts:
            file = options.texts
            ApiUser.texts = load_texts(Path(file), options.column) if file else made_up()

    def rule(self) -> Json | None:
        """Return the request's rule or target; None leaves the choice to the policy."""
        return None

    def examples(self) -> list[Example]:
        """Return the next request's texts."""
        return [random.choice(self.texts)]

    def on_start(self) -> None:
        if self._open:
            pattern = self.environment.parsed_options.arrivals
            self._due = due_times(pattern, self._per_user, time.perf_counter(), random.Random())

    def wait_time(self) -> float:
        """Pause so that a closed loop keeps its rate, if it has one."""
        if self._open or not self._per_user:
            return 0.0
        pause: float = constant_pacing(1 / self._per_user)(self)
        return pause

    @task
    def classify(self) -> None:
        """Send one request: now, or when it is due."""
        if not self._open:
            self._request(time.perf_counter())
            return
        due_s = next(self._due)
        gevent.sleep(max(0.0, due_s - time.perf_counter()))
        if len(self.outstanding) < self.environment.parsed_options.most_outstanding:
            self.outstanding.spawn(self._request, due_s)
        else:
            self._report_not_sent()

    def _request(self, due_s: float) -> None:
        """Send one request; any outcome but a result for every text is a failure."""
        logged = LoggedRequest(self.examples(), late_ms=1e3 * (time.perf_counter() - due_s))
        response = self._send(self._body(logged.examples), logged)
        with response:
            # Locust knows neither when the request was due nor the earlier tries.
            response.request_meta["response_time"] = 1e3 * (time.perf_counter() - due_s)
            outcome = logged.outcome
            if outcome is not None and outcome.problem:
                response.failure(outcome.problem)

    def _send(self, body: Json, logged: LoggedRequest) -> ResponseContextManager:
        """Send the request, and again after a transient failure while `--retries` allow."""
        left = self.environment.parsed_options.retries
        while True:
            response = self.client.post(
                _PATH,
                json=body,
                headers=self._headers,
                name=self.kind,
                catch_response=True,
                context={"logged": logged},
            )
            logged.outcome = outcome = _outcome(response, len(logged.examples))
            if not outcome.problem or not left or not outcome.transient:
                return response
            logged.earlier.append(outcome.problem)
            left -= 1
            gevent.sleep(outcome.retry_after_s or _RETRY_AFTER_S)

    def _body(self, examples: list[Example]) -> Json:
        rule = self.environment.parsed_options.exit or self.rule()
        texts = [example.inputs for example in examples]
        inputs = texts if self.option == "batch" else texts[0]
        return {"inputs": inputs} | ({"exit": rule} if rule else {})

    def _report_not_sent(self) -> None:
        """Count a request that was due while too many others waited."""
        problem = f"not sent: {len(self.outstanding)} requests were waiting"
        logged = LoggedRequest([], late_ms=0.0, outcome=Outcome(0, problem), sent=False)
        self.environment.events.request.fire(
            request_type="POST",
            name=self.kind,
            response_time=0.0,
            response_length=0,
            exception=CatchResponseError(problem),
            context={"logged": logged},
        )


class DefaultUser(ApiUser):
    """Leaves the rule to the policy, as most clients do."""

    kind, option = "default policy", "default"


class TargetUser(ApiUser):
    """Says what an answer may cost; every model can have that."""

    kind, option = "target", "target"

    def rule(self) -> Json:
        return {"target": {"max_disagreement": random.choice((0.01, 0.02, 0.03, 0.05))}}


class ThresholdUser(ApiUser):
    """Sends an entropy threshold of its own."""

    kind, option = "own threshold", "threshold"

    def rule(self) -> Json:
        return {"rule": "entropy", "threshold": round(random.uniform(0.02, 0.6), 2)}


class PatienceUser(ApiUser):
    """Sends a patience rule."""

    kind, option = "patience", "patience"

    def rule(self) -> Json:
        return {"rule": "patience", "patience": random.choice((1, 2))}


class BatchUser(ApiUser):
    """Sends several texts in one request."""

    kind, option = "batch", "batch"

    def examples(self) -> list[Example]:
        return random.choices(self.texts, k=self.environment.parsed_options.batch_texts)


USERS: tuple[type[ApiUser], ...] = (
    DefaultUser,
    TargetUser,
    ThresholdUser,
    PatienceUser,
    BatchUser,
)


def finish(**_: object) -> None:
    """Wait for answers that are still outstanding when the streams have ended."""
    ApiUser.outstanding.join(_FINISH_S)


events.test_stop.add_listener(finish)


def weighted(weights: dict[str, int]) -> list[type[ApiUser]]:
    """Return the classes that are used, each with its weight set."""
    for user in USERS:
        user.weight = weights[user.option]
    return [user for user in USERS if user.weight]


def _outcome(response: ResponseContextManager, num_texts: int) -> Outcome:
    if response.status_code == 0:
        # The response has all attributes of Locust's ErrorResponse.
        return Outcome(0, f"no answer: {response.error}")  # type: ignore[attr-defined]
    return outcome_of(response.status_code, response.content or b"", response.headers, num_texts)
