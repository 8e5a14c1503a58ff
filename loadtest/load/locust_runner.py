"""A headless Locust run inside this process.

Importing Locust patches the standard library for gevent: only commands that do nothing else
import this.
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
from locust.runners import LocalRunner

from loadtest.http.client import ApiError, Client
from loadtest.http.exit_counts import ExitCounts, exits_in_metrics
from loadtest.http.metrics_page import Scrape
from loadtest.http.processes import Cost, cost_of, own_cpu_s, session_of
from loadtest.load.figures import Figures, Ramped, Spent, latencies
from loadtest.load.plans import Ramp
from loadtest.load.request_log import Asked
from loadtest.load.samples import Samples
from loadtest.load.saturation import knee
from loadtest.load.shapes import ChosenShape
from loadtest.load.users import weighted

Tick: TypeAlias = Callable[[float, float], None]

_TICK_S = 0.5
_FINISH_S = 30.0  # for requests that are under way at the end
_SETTLE_S = 5.0  # for counters that trail the answers


class Swarm:
    """Users of one server, and what they found."""

    def __init__(self, url: str, options: Namespace, server_pid: int | None = None) -> None:
        """Prepare.

        Args:
            url: of the server.
            options: those of `loadtest.load.options`, with `users` and `seconds`.
            server_pid: leader of the session of the server's processes, if they are here.
        """
        self._client = Client(url)
        self._pid = server_pid
        self.samples = Samples(labels=_labels(self._client))
        self._metered = not options.no_metrics
        self._users: list[tuple[float, int]] = []
        self._shape = ChosenShape()
        self._environment = self._prepare(url, options)
        self._began_s, self._began_at = time.perf_counter(), time.time()

    def attack(self, tick: Tick) -> Figures:
        """Load the server and return what was found.

        Args:
            tick: called now and then with the seconds passed and the requests per second.
        """
        page = self._client.metrics() if self._metered else ""
        cost, own_s, self._began_at = self._cost(), own_cpu_s(), time.time()
        runner = self._environment.create_local_runner()
        self._shape.runner = runner
        self._began_s = time.perf_counter()
        runner.start_shape()
        # Kept: when the shape ends the run, Locust ends its greenlet before it forgets it.
        seconds = self._watch(runner, runner.shape_greenlet, tick)
        spent = Spent(generator_cpu_s=own_cpu_s() - own_s)
        if cost is not None and (after := self._cost()) is not None:
            spent = spent._replace(
                server_cpu_s=after.cpu_since(cost),
                server_memory_mb=after.memory_mb,
                server_memory_before_mb=cost.memory_mb,
            )
        return self._figures(runner, page, seconds, spent)

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
        self, name: str, response_time: float, context: dict[str, Asked], **_: object
    ) -> None:
        began_s = time.perf_counter() - self._began_s - response_time / 1e3
        self.samples.add(name, max(0.0, began_s), response_time, context["asked"])

    def _watch(self, runner: LocalRunner, shape: Greenlet, tick: Tick) -> float:
        """Wait until the shape has ended the run; return how long requests were sent."""
        passed_s = 0.0
        while not shape.ready():
            passed_s = time.perf_counter() - self._began_s
            self._users.append((passed_s, runner.user_count))
            tick(passed_s, runner.stats.total.current_rps)
            gevent.sleep(_TICK_S)
        return max((*self.samples.began_s[-1:], _TICK_S))

    def _cost(self) -> Cost | None:
        return None if self._pid is None else cost_of(session_of(self._pid))

    def _figures(self, runner: LocalRunner, page: str, seconds: float, spent: Spent) -> Figures:
        seen = self.samples.seen
        counted, moved = self._counted_since(page, seen)
        kinds, total = latencies(self.samples, seconds)
        raised = {error["msg"]: error["count"] for error in runner.exceptions.values()}
        plan = self._shape.plan
        ramped = None
        if isinstance(plan, Ramp):
            ramped = Ramped(tuple(plan.steps), knee(plan.steps, plan.limits), plan.reason)
        return Figures(
            kinds=kinds,
            total=total,
            seconds=seconds,
            errors=dict(self.samples.errors) | raised,
            seen=seen,
            counted=counted,
            metered=self._metered,
            began_at=self._began_at,
            samples=self.samples,
            users=self._users,
            moved=moved,
            spent=spent,
            ramped=ramped,
        )

    def _counted_since(self, page: str, seen: ExitCounts) -> tuple[ExitCounts, Scrape]:
        """Return what the server has counted since, which may trail its answers a little."""
        if not self._metered:
            return ExitCounts(), Scrape({})
        before, scraped = exits_in_metrics(page), Scrape.of(page)
        deadline = time.monotonic() + _SETTLE_S
        while True:
            now = self._client.metrics()
            counted = exits_in_metrics(now) - before
            if counted >= seen or time.monotonic() > deadline:
                return counted, Scrape.of(now).since(scraped)
            gevent.sleep(_TICK_S)


def _labels(client: Client) -> tuple[str, ...]:
    """Return the only model's labels, or none where that is not to be had."""
    with suppress(ApiError, LookupError, TypeError):
        (model,) = client.models()
        return tuple(model["labels"])
    return ()
