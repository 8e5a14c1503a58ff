"""Every contender at every load, with every kind of arrivals and every exit mix."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from loadtest.simulator.record import Figures
from loadtest.simulator.scenario import COMPLETION, CONTENDERS, ENGINE, Scenario
from loadtest.simulator.workload import Traffic

# Two equally good contenders differ by less than this at a point.
LEAST_RATIO = 0.98


@dataclass(frozen=True, slots=True)
class Point:
    """One load."""

    load: float  # arrivals over the reference's saturated capacity
    figures: tuple[Figures, ...]  # one per contender

    @property
    def ratio(self) -> float:
        """The engine's requests within the bound over those of run-to-completion batches."""
        return _rated(self.within_bound(ENGINE), self.within_bound(COMPLETION))

    def within_bound(self, name: str) -> float:
        """The share of a contender's requests that are answered within the bound."""
        return next(found.within_bound for found in self.figures if found.contender == name)


@dataclass(frozen=True, slots=True)
class Part:
    """One kind of traffic."""

    arrivals: str
    mix: str
    mean_exit: float  # its mean layer
    bound_ms: float  # the latency bound
    capacity: dict[str, float]  # contender -> answers per second when saturated
    # Contender -> highest rate whose p99 keeps the bound; None if not asked for.
    sustainable: dict[str, float] | None
    points: tuple[Point, ...]  # ascending loads

    @property
    def sustainable_ratio(self) -> float | None:
        """The engine's highest rate within the bound over that of run-to-completion batches."""
        if self.sustainable is None or not self.sustainable[COMPLETION]:
            return None
        return self.sustainable[ENGINE] / self.sustainable[COMPLETION]

    @property
    def worst(self) -> float | None:
        """The smallest ratio of requests within the bound over all loads."""
        return min((point.ratio for point in self.points), default=None)


def overall(parts: Sequence[Part]) -> float | None:
    """Return the ratio of all requests answered within the bound, over all loads together."""
    points = [point for part in parts for point in part.points]
    ours, theirs = (sum(p.within_bound(name) for p in points) for name in (ENGINE, COMPLETION))
    return _rated(ours, theirs) if points else None


def _rated(ours: float, theirs: float) -> float:
    if theirs:
        return ours / theirs
    return float("inf") if ours else 1.0


def measure(
    scenario: Scenario, traffic: Traffic, loads: Sequence[float], reference: str, search: bool
) -> Part:
    """Simulate all contenders on one kind of traffic.

    Args:
        scenario: the device and what all simulations have in common.
        traffic: the requests.
        loads: relative to the reference's saturated capacity.
        reference: contender whose saturated capacity is load 1.
        search: also look for the highest rate that each sustains within the bound.
    """
    # Deadlines would drop some of the requests that saturate.
    patient = replace(traffic, timeout_s=float("inf"))
    capacity = {name: scenario.capacity(name, patient) for name in CONTENDERS}
    points = tuple(
        Point(
            load,
            tuple(
                scenario.simulate(name, traffic, load * capacity[reference]) for name in CONTENDERS
            ),
        )
        for load in loads
    )
    sustainable = None
    if search:
        sustainable = {
            name: scenario.sustainable(name, traffic, capacity[name]) for name in CONTENDERS
        }
    work = traffic.draw(1.0, scenario.num_requests, scenario.seed)
    return Part(
        arrivals=traffic.arrivals.name,
        mix=traffic.mix.name,
        mean_exit=float(work.exits.mean()),
        bound_ms=scenario.bound_s(work) * 1000,
        capacity=capacity,
        sustainable=sustainable,
        points=points,
    )


def as_document(part: Part) -> dict[str, Any]:
    """Return a part as JSON data, ratios included."""
    document = asdict(part)
    for point, entry in zip(part.points, document["points"], strict=True):
        entry["ratio_within_bound"] = point.ratio
    return document | {
        "ratio_sustainable": part.sustainable_ratio,
        "worst_ratio_within_bound": part.worst,
        "overall_ratio_within_bound": overall([part]),
    }
