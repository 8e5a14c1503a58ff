"""Locust users of the HTTP API, a class for each way of asking.

In a closed loop a user asks when its last answer is there. In an open loop it is a stream: it
sends requests when they are due, each in a greenlet of its own, and counts their time from then.
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

from loadtest.http.client import Json
from loadtest.load.arrivals import Timetable
from loadtest.load.request_log import Asked, Outcome, problem_of, worth_a_retry
from loadtest.load.texts import Example, load_texts, made_up

_PATH = "/v1/classify"
_RETRY_AFTER_S = 0.2  # where the server does not say
_FINISH_S = 30.0


class ApiUser(FastHttpUser):
    """What all ways of asking share; the subclasses say what goes into a request."""

    abstract = True
    connection_timeout = 10.0
    kind = ""
    way = ""
    texts: ClassVar[tuple[Example, ...]] = ()
    outstanding: ClassVar[Group] = Group()

    def __init__(self, environment: Any) -> None:
        options = environment.parsed_options
        self._open = options.arrivals != "closed"
        self._per_user = options.rate_per_user or 0.0
        self.network_timeout = options.timeout
        # Connections are made as they are needed.
        self.concurrency = options.most_outstanding if self._open else 1
        super().__init__(environment)
        if not ApiUser.texts:
            file = options.texts
            ApiUser.texts = load_texts(Path(file), options.column) if file else made_up()

    def rule(self) -> Json | None:
        """Return the rule to ask for; None leaves the choice to the policy."""
        return None

    def examples(self) -> list[Example]:
        """Return what the next request asks about."""
        return [random.choice(self.texts)]

    def on_start(self) -> None:
        if self._open:
            pattern = self.environment.parsed_options.arrivals
            self._due = Timetable(pattern, self._per_user, time.perf_counter(), random.Random())

    def wait_time(self) -> float:
        """Pause so that a closed loop keeps its rate, if it was given one."""
        if self._open or not self._per_user:
            return 0.0
        pause: float = constant_pacing(1 / self._per_user)(self)
        return pause

    @task
    def classify(self) -> None:
        """Ask once: now, or when it is due."""
        if not self._open:
            self._ask(time.perf_counter())
            return
        due_s = self._due.next()
        gevent.sleep(max(0.0, due_s - time.perf_counter()))
        if len(self.outstanding) < self.environment.parsed_options.most_outstanding:
            self.outstanding.spawn(self._ask, due_s)
        else:
            self._report_not_sent()

    def _ask(self, due_s: float) -> None:
        """Send one request; anything but an answer to every text is a failure."""
        examples = self.examples()
        asked = Asked(examples, late_ms=1e3 * (time.perf_counter() - due_s))
        body = self._body(examples)
        response = self._send(body, asked)
        with response:
            # Locust does not know when it was due, nor of earlier tries.
            response.request_meta["response_time"] = 1e3 * (time.perf_counter() - due_s)
            outcome = asked.outcome
            if outcome is not None and outcome.problem:
                response.failure(outcome.problem)

    def _send(self, body: Json, asked: Asked) -> ResponseContextManager:
        """Send the request, again if that is allowed and promises something."""
        left = self.environment.parsed_options.retries
        while True:
            response = self.client.post(
                _PATH, json=body, name=self.kind, catch_response=True, context={"asked": asked}
            )
            asked.outcome = outcome = _outcome(response, len(asked.examples))
            if not outcome.problem or not left or not worth_a_retry(outcome):
                return response
            asked.earlier.append(outcome.problem)
            left -= 1
            gevent.sleep(outcome.retry_after_s or _RETRY_AFTER_S)

    def _body(self, examples: list[Example]) -> Json:
        rule = self.environment.parsed_options.exit or self.rule()
        texts = [example.inputs for example in examples]
        inputs = texts if self.way == "batch" else texts[0]
        return {"inputs": inputs} | ({"exit": rule} if rule else {})

    def _report_not_sent(self) -> None:
        """Count a request that was due while too many others waited."""
        problem = f"not sent: {len(self.outstanding)} requests were waiting"
        self.environment.events.request.fire(
            request_type="POST",
            name=self.kind,
            response_time=0.0,
            response_length=0,
            exception=CatchResponseError(problem),
            context={"asked": Asked([], late_ms=0.0, outcome=Outcome(0, problem), sent=False)},
        )


class DefaultUser(ApiUser):
    """Leaves the rule to the policy, as most clients do."""

    kind = "default policy"
    way = "default"


class ThresholdUser(ApiUser):
    """Asks for an entropy threshold of its own."""

    kind = "own threshold"
    way = "threshold"

    def rule(self) -> Json:
        """Return a threshold between careful and bold."""
        return {"rule": "entropy", "threshold": round(random.uniform(0.02, 0.6), 2)}


class PatienceUser(ApiUser):
    """Asks for exits that agree."""

    kind = "patience"
    way = "patience"

    def rule(self) -> Json:
        """Return one or two agreements."""
        return {"rule": "patience", "patience": random.choice((1, 2))}


class BatchUser(ApiUser):
    """Sends several texts in one request."""

    kind = "batch"
    way = "batch"

    def examples(self) -> list[Example]:
        """Return different texts, with their different lengths."""
        return random.choices(self.texts, k=self.environment.parsed_options.batch_texts)


USERS: tuple[type[ApiUser], ...] = (DefaultUser, ThresholdUser, PatienceUser, BatchUser)


def finish(**_: object) -> None:
    """Wait for the answers that streams are still owed when they have ended."""
    ApiUser.outstanding.join(_FINISH_S)


events.test_stop.add_listener(finish)


def weighted(weights: dict[str, int]) -> list[type[ApiUser]]:
    """Return the classes that are used, each with its weight set."""
    for user in USERS:
        user.weight = weights[user.way]
    return [user for user in USERS if user.weight]


def _outcome(response: ResponseContextManager, num_texts: int) -> Outcome:
    """Return what became of a try."""
    if response.status_code == 0:
        # It took over all that Locust's ErrorResponse has.
        return Outcome(0, f"no answer: {response.error}")  # type: ignore[attr-defined]
    return problem_of(response.status_code, response.content or b"", response.headers, num_texts)
