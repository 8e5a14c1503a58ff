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
from locust import events
from locust.argument_parser import get_parser
from locust.env import Environment
from locust.html import get_html_report
from locust.runners import LocalRunner
from locust.stats import stats_history

from loadtest.http.client import ApiError, Client
from loadtest.http.metrics_page import Growth, MetricsPage
from loadtest.http.processes import Cost, Family, cost_of, own_cpu_s
from loadtest.load.figures import Run
from loadtest.load.locustfile import ApiUser, ChosenShape
from loadtest.load.plans import Ramp
from loadtest.load.samples import LoggedRequest, Samples

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
        self._client, self._family = Client(url), family
        self._samples = Samples(labels=_labels(self._client))
        self._growth: Growth | None = None
        if not options.no_metrics:
            self._growth = Growth(MetricsPage.of(self._client.metrics()))
        self._users: list[tuple[float, int]] = []
        self._wanted: list[int] = []
        self._rate_per_user = None if options.arrivals == "closed" else options.rate_per_user
        self._shape = ChosenShape()
        parsed = get_parser().parse_args(["--headless"])
        vars(parsed).update(vars(options), num_users=options.users, run_time=options.seconds)
        self._environment = Environment(
            user_classes=[ApiUser],
            shape_class=self._shape,
            events=events,
            host=url,
            stop_timeout=_FINISH_S,
            parsed_options=parsed,
        )
        self._environment.events.request.add_listener(self._note)
        self._began_s = time.perf_counter()

    def run(self, tick: Tick) -> Run:
        """Load the server and return what was found.

        Args:
            tick: called now and then with the seconds passed and the requests per second.
        """
        reading = gevent.spawn(self._read_metrics)
        before, own_s, began_at = self._cost(), own_cpu_s(), time.time()
        runner = self._environment.create_local_runner()
        self._shape.runner = runner
        history = gevent.spawn(stats_history, runner)
        self._began_s = time.perf_counter()
        runner.start_shape()
        seconds = self._watch(runner, tick)
        gevent.killall([history, reading])
        self._settle()
        own_s, after, growth = own_cpu_s() - own_s, self._cost(), self._growth
        return Run(
            samples=self._samples,
            seconds=seconds,
            began_at=began_at,
            raised={error["msg"]: error["count"] for error in runner.exceptions.values()},
            users=self._users,
            wanted_users=self._wanted,
            rate_per_user=self._rate_per_user,
            metrics=growth.grown if growth else None,
            ended_replicas=growth.ended if growth else frozenset(),
            generator_cpu_s=own_s,
            server_cpu_s=after.cpu_since(before) if before and after else None,
            server_memory_before_mb=before.memory_mb if before else None,
            server_memory_mb=after.memory_mb if after else None,
            ramp=self._shape.plan if isinstance(self._shape.plan, Ramp) else None,
            charts=get_html_report(self._environment, show_download_link=False),
        )

    def _note(
        self, name: str, response_time: float, context: dict[str, LoggedRequest], **_: object
    ) -> None:
        began_s = time.perf_counter() - self._began_s - response_time / 1e3
        self._samples.add(name, max(0.0, began_s), response_time, context["logged"])

    def _watch(self, runner: LocalRunner, tick: Tick) -> float:
        """Wait until the shape has ended the run; return how long requests were sent."""
        shape = runner.shape_greenlet  # Locust forgets it when the shape ends the run
        while shape is not None and not shape.ready():
            passed_s = time.perf_counter() - self._began_s
            self._users.append((passed_s, runner.user_count))
            self._wanted.append(runner.target_user_count)
            tick(passed_s, runner.stats.total.current_rps)
            gevent.sleep(_TICK_S)
        return max((*self._samples.columns()["began_s"][-1:].tolist(), _TICK_S))

    def _cost(self) -> Cost | None:
        return cost_of(self._family.running()) if self._family else None

    def _read_metrics(self) -> None:
        """Read the server's counters now and then, until killed."""
        while self._growth:
            gevent.sleep(_READ_EVERY_S)
            with suppress(ApiError):
                self._growth.add(MetricsPage.of(self._client.metrics()))

    def _settle(self) -> None:
        """Read the server's counters until every answer is counted."""
        growth, deadline = self._growth, time.monotonic() + _SETTLE_S
        while growth:
            growth.add(MetricsPage.of(self._client.metrics()))
            counted = growth.grown.exits() >= self._samples.seen
            if counted or growth.ended or time.monotonic() > deadline:
                return
            gevent.sleep(_TICK_S)


def _labels(client: Client) -> tuple[str, ...]:
    """Return the labels of the only model; none if there are several models or no answer."""
    with suppress(ApiError, LookupError, TypeError, ValueError):
        (model,) = client.models()
        return tuple(model["labels"])
    return ()
