"""What every contender can do with one kind of traffic."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from loadtest.simulator.scenario import COMPLETION, CONTENDERS, ENGINE, Scenario
from loadtest.simulator.workload import Traffic


@dataclass(frozen=True, slots=True)
class Part:
    """One kind of traffic."""

    arrivals: str
    mix: str
    mean_exit: float  # its mean layer
    bound_ms: float  # the latency bound
    capacity: Mapping[str, float]  # contender -> answers per second when saturated
    sustainable: Mapping[str, float]  # contender -> highest rate whose p99 keeps the bound

    def as_document(self) -> dict[str, Any]:
        """Return the part as JSON data, with the engine's rate over run-to-completion batches'."""
        theirs = self.sustainable[COMPLETION]
        return asdict(self) | {
            "ratio_saturated": self.capacity[ENGINE] / self.capacity[COMPLETION],
            "ratio_sustainable": self.sustainable[ENGINE] / theirs if theirs else None,
        }


def measure(scenario: Scenario, traffic: Traffic) -> Part:
    """Simulate all contenders on one kind of traffic."""
    capacity = {name: scenario.capacity(name, traffic) for name in CONTENDERS}
    return Part(
        arrivals=traffic.arrivals.name,
        mix=traffic.mix.name,
        mean_exit=traffic.mix.mean,
        bound_ms=1000 * scenario.bound_s(traffic),
        capacity=capacity,
        sustainable={
            name: scenario.sustainable(name, traffic, rate) for name, rate in capacity.items()
        },
    )
