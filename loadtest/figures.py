"""What a load test found, as plain data."""

from dataclasses import dataclass, field

from loadtest.exits import ExitCounts


@dataclass(frozen=True)
class Latency:
    """One kind of request: how many, how many failed, how long they took."""

    kind: str
    requests: int
    failures: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    per_second: float


@dataclass(frozen=True)
class Figures:
    """A whole run.

    Attributes:
        kinds: by kind of request.
        total: all kinds together.
        errors: message -> how often; also of users that raised.
        seen: exits in the answers.
        counted: exits by which the server's counters moved meanwhile.
    """

    kinds: tuple[Latency, ...]
    total: Latency
    errors: dict[str, int] = field(default_factory=dict)
    seen: ExitCounts = field(default_factory=ExitCounts)
    counted: ExitCounts = field(default_factory=ExitCounts)


def problems(figures: Figures, exclusive: bool) -> list[str]:
    """Return what makes the run a failure, in words; nothing if it was a success.

    Args:
        figures: the run.
        exclusive: nobody else used the server, so its counters must equal the answers seen.
    """
    found = []
    if not figures.total.requests:
        found.append("no request was answered")
    if figures.errors:
        found.append(f"{figures.total.failures} of {figures.total.requests} requests failed")
    missing = figures.seen - figures.counted
    surplus = figures.counted - figures.seen
    if missing:
        found.append(f"the server did not count {missing.total()} exits that its answers name")
    if surplus and exclusive:
        found.append(f"the server counted {surplus.total()} exits that no answer names")
    return found
