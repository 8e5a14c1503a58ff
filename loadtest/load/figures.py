"""What a load test found, as plain data."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from loadtest.http.exit_counts import ExitCounts
from loadtest.http.metrics_page import Scrape
from loadtest.load.samples import Samples
from loadtest.load.saturation import Step


@dataclass(frozen=True)
class Latency:
    """One kind of request: how many, how many failed, how long the answered ones took."""

    kind: str
    requests: int
    failures: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    per_second: float


class Spent(NamedTuple):
    """What a run has cost.

    Attributes:
        server_cpu_s: of all the server's processes; None where they are not ours to see.
        server_memory_mb: at the end.
        server_memory_before_mb: at the beginning.
        generator_cpu_s: of the process that made the load.
    """

    server_cpu_s: float | None = None
    server_memory_mb: float | None = None
    generator_cpu_s: float = 0.0
    server_memory_before_mb: float | None = None


@dataclass(frozen=True)
class Ramped:
    """What a ramp found."""

    steps: tuple[Step, ...]
    knee: Step | None
    reason: str | None


@dataclass(frozen=True)
class Figures:
    """A whole run.

    Attributes:
        kinds: by kind of request.
        total: all kinds together.
        seconds: how long requests were sent.
        errors: message -> how often; also of users that raised.
        seen: exits in the answers.
        counted: exits by which the server's counters moved meanwhile.
        metered: whether the server's counters were read.
        began_at: when it began, in seconds since the epoch.
        samples: every request.
        users: (seconds since the beginning, how many).
        moved: how far the server's metrics moved.
        spent: what it cost.
        ramped: of a ramp.
    """

    kinds: tuple[Latency, ...]
    total: Latency
    seconds: float = 0.0
    errors: dict[str, int] = field(default_factory=dict)
    seen: ExitCounts = field(default_factory=ExitCounts)
    counted: ExitCounts = field(default_factory=ExitCounts)
    metered: bool = True
    began_at: float = 0.0
    samples: Samples = field(default_factory=Samples)
    users: Sequence[tuple[float, int]] = ()
    moved: Scrape = field(default_factory=lambda: Scrape({}))
    spent: Spent = field(default_factory=Spent)
    ramped: Ramped | None = None


def latencies(samples: Samples, seconds: float) -> tuple[tuple[Latency, ...], Latency]:
    """Return figures by kind of request, and of all together."""
    kinds = np.array(samples.kinds, dtype=object)
    names = sorted(set(samples.kinds))
    every = np.ones(len(kinds), dtype=bool)
    found = [_latency(name, samples, kinds == name, seconds) for name in names]
    return tuple(found), _latency("all", samples, every, seconds)


def _latency(kind: str, samples: Samples, of_kind: np.ndarray, seconds: float) -> Latency:
    failed = samples.failures
    answered = samples.column("latency_ms")[of_kind & ~failed]
    p50, p95, p99 = np.quantile(answered, (0.5, 0.95, 0.99)) if len(answered) else (0.0,) * 3
    return Latency(
        kind=kind,
        requests=int(of_kind.sum()),
        failures=int((of_kind & failed).sum()),
        p50_ms=float(p50),
        p95_ms=float(p95),
        p99_ms=float(p99),
        per_second=len(answered) / seconds if seconds else 0.0,
    )


def problems(figures: Figures, exclusive: bool) -> list[str]:
    """Return what makes the run a failure, in words; nothing if it was a success.

    Args:
        figures: the run. A ramp goes on until something fails, so there that is no problem.
        exclusive: nobody else used the server, so its counters must equal the answers seen.
    """
    found = []
    if not figures.total.requests:
        found.append("no request was answered")
    if figures.errors and not figures.ramped:
        found.append(f"{figures.total.failures} of {figures.total.requests} requests failed")
    if not figures.metered:
        return found
    missing = figures.seen - figures.counted
    surplus = figures.counted - figures.seen
    if missing:
        found.append(f"the server did not count {missing.total()} exits that its answers name")
    if surplus and exclusive and not figures.errors and not figures.samples.retried:
        found.append(f"the server counted {surplus.total()} exits that no answer names")
    return found
