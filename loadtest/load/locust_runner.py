"""A headless Locust run inside this process.

Importing Locust patches the standard library for gevent, so only a process that does nothing else
imports this module.
"""

import time
from argparse import Namespace
from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

import gevent
from gevent import Greenlet
from locust import events
from locust.argument_parser import get_parser
from locust.env import Environment
from locust.html import get_html_report
from locust.runners import LocalRunner
from locust.stats import stats_history

from loadtest.http.client import ApiError, Client
from loadtest.http.metrics_page import Growth, MetricsPage
from loadtest.http.processes import Cost, Family, cost_of, own_cpu_s
from loadtest.load.figures import Figures, RunCost
from loadtest.load.request_log import LoggedRequest
from loadtest.load.samples import Samples
from loadtest.load.shapes import ChosenShape
from loadtest.load.users import weighted

Tick: TypeAlias = Callable[[float, float], None]

_TICK_S = 0.5
_FINISH_S = 30.0  # for requests that are under way at the end
_SETTLE_S = 5.0  # the server's counters may trail its answers
# A replica that ends takes along at most what it counted since the last reading.
_READ_EVERY_S = 5.0


class LocustRunner:
    """Runs the users against one server and collects what they find."""

    def __init__(self, url: str, options: Namespace, family: Family | None = None) -> None:
        """Prepare.

        Args:
            url: of the server.
            options: those of `loadtest.load.options`, with `users` and `seconds`.
            family: the server's processes, if they run here.
        """
        self._client = Client(url)
        self._family = family
        self._samples = Samples(labels=_labels(self._client))
        self._metered = not options.no_metrics
        self._users: list[tuple[float, int]] = []
        self._wanted: list[int] = []
        is_open = options.arrivals != "closed"
        self._rate_per_user: float | None = options.rate_per_user if is_open else None
        self._shape = ChosenShape()
        self._environment = self._prepare(url, options)
        self._began_s = time.perf_counter()

    def run(self, tick: Tick) -> Figures:
        """Load the server and return what was found.

        Args:
            tick: called now and then with the seconds passed and the requests per second.
        """
        growth = Growth(MetricsPage.of(self._client.metrics())) if self._metered else None
        reading = gevent.spawn(self._read_metrics, growth) if growth else None
        cost, own_s, began_at = self._cost(), own_cpu_s(), time.time()
        runner = self._environment.create_local_runner()
        self._shape.runner = runner
        history = gevent.spawn(stats_history, runner)
        self._began_s = time.perf_counter()
        runner.start_shape()
        # Locust forgets the greenlet when the shape ends the run.
        seconds = self._watch(runner, runner.shape_greenlet, tick)
        gevent.killall([history, *([reading] if reading else [])])
        if growth:
            self._settle(growth)
        spent = RunCost(own_cpu_s() - own_s)
        if cost is not None and (after := self._cost()) is not None:
            memory_mb = cost.memory_mb, after.memory_mb
            spent = RunCost(spent.generator_cpu_s, after.cpu_since(cost), *memory_mb)
        return Figures(
            samples=self._samples,
            seconds=seconds,
            began_at=began_at,
            raised={error["msg"]: error["count"] for error in runner.exceptions.values()},
            users=self._users,
            wanted_users=self._wanted,
            rate_per_user=self._rate_per_user,
            metrics=growth.grown if growth else None,
            ended_replicas=growth.ended if growth else frozenset(),
            cost=spent,
            ramp=self._shape.ramp_result(),
            charts=get_html_report(self._environment, show_download_link=False),
        )

    def _prepare(self, url: str, options: Namespace) -> Environment:
        parsed = get_parser().parse_args(["--headless"])
        vars(parsed).update(vars(options), num_users=options.users, run_time=options.seconds)
        environment = Environment(
            user_classes=[*weighted(options.weights)],
            shape_class=self._shape,
            events=events,
            host=url,
            stop_timeout=_FINISH_S,
            parsed_options=parsed,
        )
        environment.events.request.add_listener(self._note)
        return environment

    def _note(
        self, name: str, response_time: float, context: dict[str, LoggedRequest], **_: object
    ) -> None:
        began_s = time.perf_counter() - self._began_s - response_time / 1e3
        self._samples.add(name, max(0.0, began_s), response_time, context["logged"])

    def _watch(self, runner: LocalRunner, shape: Greenlet, tick: Tick) -> float:
        """Wait until the shape has ended the run; return how long requests were sent."""
        passed_s = 0.0
        while not shape.ready():
            passed_s = time.perf_counter() - self._began_s
            self._users.append((passed_s, runner.user_count))
            self._wanted.append(runner.target_user_count)
            tick(passed_s, runner.stats.total.current_rps)
            gevent.sleep(_TICK_S)
        return max((*self._samples.began_s[-1:], _TICK_S))

    def _cost(self) -> Cost | None:
        return cost_of(self._family.running()) if self._family else None

    def _read_metrics(self, growth: Growth) -> None:
        """Read the server's counters now and then, until killed."""
        while True:
            gevent.sleep(_READ_EVERY_S)
            with suppress(ApiError):
                growth.add(MetricsPage.of(self._client.metrics()))

    def _settle(self, growth: Growth) -> None:
        """Read the server's counters until every answer is counted."""
        seen, deadline = self._samples.seen, time.monotonic() + _SETTLE_S
        while True:
            growth.add(MetricsPage.of(self._client.metrics()))
            if growth.grown.exits() >= seen or growth.ended or time.monotonic() > deadline:
                return
            gevent.sleep(_TICK_S)


def _labels(client: Client) -> tuple[str, ...]:
    """Return the labels of the only model; none if there are several models or no answer."""
    with suppress(ApiError, LookupError, TypeError, ValueError):
        (model,) = client.models()
        return tuple(model["labels"])
    return ()
