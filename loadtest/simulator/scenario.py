"""The contenders, and what each simulation has in common."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from loadtest.simulator.batches import run_whole
from loadtest.simulator.device import Device
from loadtest.simulator.engine import run_engine
from loadtest.simulator.workload import Record, Times, Traffic, Workload
from serve.engine.scheduler import BatchLimits

Contender: TypeAlias = Callable[[Workload, Device, BatchLimits], Record]

ENGINE, WHOLE = "engine", "whole model"
CONTENDERS: Mapping[str, Contender] = {ENGINE: run_engine, WHOLE: run_whole}


@dataclass(frozen=True, slots=True)
class Scenario:
    """A device, its limits, and how requests are drawn and judged."""

    device: Device  # what segments cost
    limits: BatchLimits  # bounds on batches, for every contender
    num_requests: int  # in each simulation
    seed: int  # of everything drawn
    bound_times: float  # latency bound in times of a lone full run

    def bound_s(self, traffic: Traffic) -> float:
        """Return the latency bound, from a request of mean length, rounded to a token."""
        tokens = traffic.draw(1.0, self.num_requests, self.seed).tokens
        return self.bound_times * self.device.lone_s(round(float(tokens.mean())))

    def latencies_s(self, contender: str, traffic: Traffic, rate: float) -> Times:
        """Return what each request waited for its answer, at a rate of arrivals per second."""
        work = traffic.draw(rate, self.num_requests, self.seed)
        return self._run(contender, work).answered() - work.arrival_s

    def capacity(self, contender: str, traffic: Traffic) -> float:
        """Return answers per second when all requests wait from the start."""
        work = traffic.draw(1.0, self.num_requests, self.seed).all_at_once()
        return len(work) / float(self._run(contender, work).answered().max())

    def sustainable(self, contender: str, traffic: Traffic, capacity: float) -> float:
        """Return the highest rate whose p99 latency keeps the bound, by bisection.

        To about 1 % of the capacity; 0 if even a hundredth of it breaks the bound.
        """
        low, high = 0.01 * capacity, 1.02 * capacity
        if not self._keeps_bound(contender, traffic, low):
            return 0.0
        while high - low > 0.01 * capacity:
            middle = (low + high) / 2
            if self._keeps_bound(contender, traffic, middle):
                low = middle
            else:
                high = middle
        return low

    def _run(self, contender: str, work: Workload) -> Record:
        return CONTENDERS[contender](work, self.device, self.limits)

    def _keeps_bound(self, contender: str, traffic: Traffic, rate: float) -> bool:
        latency_s = self.latencies_s(contender, traffic, rate)
        return float(np.percentile(latency_s, 99, method="higher")) <= self.bound_s(traffic)
