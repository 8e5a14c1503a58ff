"""A headless Locust run inside this process.

Importing Locust patches the standard library for gevent: only `loadtest.run` imports this.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

import gevent
from locust import events
from locust.argument_parser import get_parser
from locust.contrib.fasthttp import FastResponse
from locust.env import Environment
from locust.runners import LocalRunner
from locust.stats import StatsEntry

from loadtest.client import Client
from loadtest.exits import ExitCounts, exits_in_metrics, exits_in_reply
from loadtest.figures import Figures, Latency
from loadtest.locustfile import USERS

Tick: TypeAlias = Callable[[float, float], None]

_TICK_S = 0.5
_FINISH_S = 30.0  # for requests that are under way at the end
_SETTLE_S = 5.0  # for counters that trail the answers


class Load(NamedTuple):
    """How many users, for how long, and the rule they ask for instead of their own."""

    users: int
    seconds: float
    exit_rule: dict[str, Any] | None = None


def attack(url: str, load: Load, tick: Tick) -> Figures:
    """Load a running server and return what was found.

    Args:
        url: of the server.
        load: how many users and for how long.
        tick: called now and then with the seconds passed and the requests per second.
    """
    client, seen = Client(url), ExitCounts()
    before = exits_in_metrics(client.metrics())
    environment = _environment(url, load, seen)
    with _running(environment, load.users) as runner:
        _wait(load.seconds, environment, tick)
    counted = _counted_since(before, seen, client)
    stats = environment.stats
    return Figures(
        kinds=tuple(_latency(stats.entries[key]) for key in sorted(stats.entries)),
        total=_latency(stats.total),
        errors=_errors(environment, runner),
        seen=seen,
        counted=counted,
    )


def _environment(url: str, load: Load, seen: ExitCounts) -> Environment:
    """Return users of that server whose answers' exits are added to `seen`."""

    def note(response: FastResponse, exception: Exception | None, **_: object) -> None:
        if exception is None:
            seen.update(exits_in_reply(response.json()))

    rule = ["--exit", json.dumps(load.exit_rule)] if load.exit_rule else []
    environment = Environment(
        user_classes=list(USERS),
        events=events,
        host=url,
        stop_timeout=_FINISH_S,
        parsed_options=get_parser().parse_args(["--headless", *rule]),
    )
    environment.events.request.add_listener(note)
    return environment


@contextmanager
def _running(environment: Environment, num_users: int) -> Iterator[LocalRunner]:
    """Run users; leaving the block lets them finish the requests under way."""
    runner = environment.create_local_runner()
    runner.start(num_users, spawn_rate=num_users)
    try:
        yield runner
    finally:
        runner.quit()


def _wait(seconds: float, environment: Environment, tick: Tick) -> None:
    began = time.monotonic()
    while (passed_s := time.monotonic() - began) < seconds:
        tick(passed_s, environment.stats.total.current_rps)
        gevent.sleep(min(_TICK_S, seconds - passed_s))


def _counted_since(before: ExitCounts, seen: ExitCounts, client: Client) -> ExitCounts:
    """Return the exits that the server has counted since, which may trail its answers a little."""
    deadline = time.monotonic() + _SETTLE_S
    while True:
        counted = exits_in_metrics(client.metrics()) - before
        if counted >= seen or time.monotonic() > deadline:
            return counted
        gevent.sleep(_TICK_S)


def _latency(entry: StatsEntry) -> Latency:
    p50, p95, p99 = (entry.get_response_time_percentile(p) or 0.0 for p in (0.5, 0.95, 0.99))
    return Latency(
        kind=entry.name,
        requests=entry.num_requests,
        failures=entry.num_failures,
        p50_ms=p50,
        p95_ms=p95,
        p99_ms=p99,
        per_second=entry.total_rps,
    )


def _errors(environment: Environment, runner: LocalRunner) -> dict[str, int]:
    errors = environment.stats.errors.values()
    found = {f"{error.name}: {error.error}": error.occurrences for error in errors}
    return found | {raised["msg"]: raised["count"] for raised in runner.exceptions.values()}
