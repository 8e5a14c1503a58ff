"""What a load test found, as plain data."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from loadtest.http.metrics_page import ExitCounts, MetricsPage
from loadtest.load.samples import Samples
from loadtest.load.saturation import Step
from models.quality.page import percent, table


class Latency(NamedTuple):
    """The requests of one kind; times are those of answered requests."""

    kind: str
    requests: int
    failures: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    per_second: float


class RunCost(NamedTuple):
    """What a run has cost."""

    generator_cpu_s: float = 0.0  # of the process that made the load
    # Of the server's processes; None if they were not started here.
    server_cpu_s: float | None = None
    server_memory_before_mb: float | None = None  # at the beginning
    server_memory_mb: float | None = None  # at the end


class RampResult(NamedTuple):
    """The steps of a ramp, its knee, and why it ended."""

    steps: tuple[Step, ...]
    knee: Step | None
    reason: str | None


# Shares of what was asked for; starting users and random arrivals explain smaller differences.
_LEAST_USERS, _LEAST_REQUESTS = 0.95, 0.9
# A request that is due may wait so long in the load generator; longer, and the rate is not kept.
_MOST_LATE_MS = 100.0
_MOST_CORES = 0.8
_HEAD = ("users", "offered/s", "answered/s", "p50 ms", "p99 ms", "failed", "")


def ramp_table(ramp: RampResult) -> str:
    """Return the steps with the knee marked, and why the ramp ended."""
    rows = [
        [
            *(step.users, step.offered, step.per_second, step.p50_ms, step.p99_ms),
            percent(step.failed),
            "knee" if step == ramp.knee else "",
        ]
        for step in ramp.steps
    ]
    ended = f"The ramp ended because {ramp.reason}." if ramp.reason else "The ramp was cut short."
    return f"{table(_HEAD, rows)}\n\n{ended}"


@dataclass(frozen=True)
class Figures:
    """A whole run."""

    samples: Samples  # every request
    seconds: float  # how long requests were sent
    began_at: float = 0.0  # in seconds since the epoch
    # Message -> how often, of users that raised.
    raised: dict[str, int] = field(default_factory=dict)
    users: Sequence[tuple[float, int]] = ()  # (seconds since the beginning, how many)
    # How much the server's metrics grew; None if they were not read.
    metrics: MetricsPage | None = None
    # Replicas that ended on the way: what they counted last is in no figure of the server.
    ended_replicas: frozenset[str] = frozenset()
    wanted_users: Sequence[int] = ()  # at the moments of `users`
    rate_per_user: float | None = None  # of an open loop
    cost: RunCost = field(default_factory=RunCost)  # processor time and memory
    ramp: RampResult | None = None
    charts: str = ""  # throughput, latency and users over time, as Locust's page of HTML

    @cached_property
    def errors(self) -> dict[str, int]:
        """Message -> how often."""
        return dict(self.samples.errors) | self.raised

    @cached_property
    def seen(self) -> ExitCounts:
        """Exits that the answers named."""
        return self.samples.seen

    @cached_property
    def counted(self) -> ExitCounts | None:
        """Exits that the server counted; None if its metrics were not read."""
        return self.metrics.exits() if self.metrics else None

    @cached_property
    def kinds(self) -> tuple[Latency, ...]:
        """Figures by kind of request."""
        return tuple(self._latency(kind) for kind in sorted(set(self.samples.kinds)))

    @cached_property
    def total(self) -> Latency:
        """Figures of all requests together."""
        return self._latency("all")

    def _latency(self, kind: str) -> Latency:
        kinds = np.array(self.samples.kinds, dtype=object)
        of_kind = np.ones(len(kinds), dtype=bool) if kind == "all" else kinds == kind
        failed = self.samples.failures
        answered = self.samples.column("latency_ms")[of_kind & ~failed]
        p50, p95, p99 = np.quantile(answered, (0.5, 0.95, 0.99)) if len(answered) else (0.0,) * 3
        return Latency(
            kind=kind,
            requests=int(of_kind.sum()),
            failures=int((of_kind & failed).sum()),
            p50_ms=float(p50),
            p95_ms=float(p95),
            p99_ms=float(p99),
            per_second=len(answered) / self.seconds if self.seconds else 0.0,
        )


def problems(figures: Figures, exclusive: bool) -> list[str]:
    """Return what makes the run a failure; empty if it was a success.

    Args:
        figures: the run. A ramp goes on until requests fail, so that some fail is no problem.
        exclusive: there were no other clients, so the server's counters must equal the answers.
    """
    found = []
    if figures.total.failures == figures.total.requests:
        found.append("no request was answered")
    if figures.errors and not figures.ramp:
        found.append(f"{figures.total.failures} of {figures.total.requests} requests failed")
    if figures.counted is None:
        return found
    missing = figures.seen - figures.counted
    surplus = figures.counted - figures.seen
    if missing and not figures.ended_replicas:
        found.append(f"the server did not count {missing.total()} exits that its answers name")
    if surplus and exclusive and not figures.errors and not figures.samples.retried:
        found.append(f"the server counted {surplus.total()} exits that no answer names")
    return found


def shortfalls(figures: Figures) -> list[str]:
    """Return a sentence for each way in which the load fell short; empty if it did not."""
    found = []
    running, wanted = _user_seconds(figures)
    if running < _LEAST_USERS * wanted:
        found.append(f"only {running / wanted:.0%} of the users ran")
    if figures.rate_per_user:
        due = figures.rate_per_user * wanted
        if due and figures.total.requests < _LEAST_REQUESTS * due:
            found.append(f"{figures.total.requests} of {due:.0f} requests were made")
        late_ms = np.quantile(figures.samples.column("late_ms"), 0.95) if figures.kinds else 0.0
        if late_ms > _MOST_LATE_MS:
            found.append(f"one request in twenty was sent {late_ms:.0f} ms late or more")
    if figures.seconds and figures.cost.generator_cpu_s / figures.seconds > _MOST_CORES:
        found.append("the load generator was at the limit of its processor")
    return found


def _user_seconds(figures: Figures) -> tuple[float, float]:
    """Return the users that ran and that should have run, each times seconds."""
    if len(figures.users) < 2:
        return 0.0, 0.0
    moments, running = np.array(figures.users, dtype=float).T
    # Up to the last request: afterwards users wait for their answers.
    lengths = np.diff(np.minimum(moments, figures.seconds), append=figures.seconds).clip(min=0)
    return float(running @ lengths), float(np.array(figures.wanted_users, dtype=float) @ lengths)
