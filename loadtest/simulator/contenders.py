"""The contenders: the engine's own scheduler, and the whole model in dynamic batches."""

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, TypeAlias, cast

import numpy as np

from loadtest.simulator.devices import Device
from loadtest.simulator.traffic import Times, Traffic, Workload
from serve.engine.batch import gather
from serve.engine.batch_selection import SizeLimits, select_batch
from serve.engine.cost_model import CostModel
from serve.engine.row import Priority
from serve.engine.scheduler import BatchLimits, Scheduler
from serve.engine.waiting_queue import LOOKAHEAD


class Record:
    """When each request was answered, and after how many segments."""

    def __init__(self, num: int) -> None:
        self.answered_s = [math.nan] * num
        self.layers = [0] * num

    def answer(self, request: int, now_s: float, layer: int) -> None:
        """Record a request's answer."""
        self.answered_s[request], self.layers[request] = now_s, layer


@dataclass(slots=True, eq=False)
class LightRow:
    """The part of a row that the scheduler reads, and the row's request."""

    request: int
    num_tokens: int
    admitted_s: float
    priority: Priority = Priority.NORMAL
    deadline_s: float = math.inf
    ahead_tokens: int = 0
    cancelled: bool = False
    client: str = ""


def run_engine(work: Workload, device: Device, limits: BatchLimits) -> Record:
    """Serve the workload as the engine would, whose thread and device take turns.

    The scheduler knows the device's costs as its warm-up would have learned them.
    """
    segments = range(len(device.segments))
    costs = [device.learned(partial(device.run_s, index)) for index in segments]
    scheduler: Any = Scheduler(limits, CostModel(costs, device.join_s[1]))
    arrival_s, tokens, exits = (each.tolist() for each in (work.arrival_s, work.tokens, work.exits))
    record, now_s, admitted = Record(len(work)), 0.0, 0
    while scheduler or admitted < len(work):
        if not scheduler:
            now_s = max(now_s, arrival_s[admitted])
        arrived = bisect_right(arrival_s, now_s, lo=admitted)
        new = range(admitted, arrived)
        scheduler.add([LightRow(each, tokens[each], arrival_s[each]) for each in new])
        admitted = arrived
        batches = scheduler.schedule(now_s)
        batch = gather(batches) if len(batches) > 1 else batches[0]
        rows, longest = len(batch.rows), batch.longest
        now_s += device.run_s(batch.depth, rows, longest)
        if len(batches) > 1:
            now_s += device.join_s[0] + device.join_s[1] * rows * longest
        batch.depth += 1
        staying: list[Any] = []
        for row in cast(list[LightRow], batch.rows):
            if exits[row.request] > batch.depth:
                staying.append(row)
            else:
                record.answer(row.request, now_s, batch.depth)
        if len(staying) < rows:
            batch.set_rows(staying)
        scheduler.requeue(batch, now_s)
    return record


def run_whole(work: Workload, device: Device, limits: BatchLimits) -> Record:
    """Make the best batch that the waiting requests allow, finish it, and so on.

    Without early exit, but with every advantage: the device's true cost, the engine's bounds on a
    batch, and the engine's own choice of the rows that start together.
    """
    arrival_s, tokens = work.arrival_s.tolist(), work.tokens.tolist()
    cost = device.learned(device.whole_s)
    # Narrowed as the engine's: on a CPU longer batches only make others wait.
    sizes = SizeLimits(limits.max_rows, limits.max_tokens).narrowed(cost)
    record, waiting, arrived, now_s = Record(len(work)), deque[int](), 0, 0.0
    while waiting or arrived < len(work):
        if not waiting:
            now_s = max(now_s, arrival_s[arrived])
        end = bisect_right(arrival_s, now_s, lo=arrived)
        waiting.extend(range(arrived, end))
        arrived = end
        candidates = list(islice(waiting, LOOKAHEAD * sizes.max_rows))
        places = select_batch([tokens[i] for i in candidates], cost, sizes)
        batch = [candidates[place] for place in places]
        _remove(waiting, set(batch))
        now_s += device.whole_s(len(batch), max(tokens[i] for i in batch))
        for request in batch:
            record.answer(request, now_s, len(device.segments))
    return record


def _remove(waiting: deque[int], gone: set[int]) -> None:
    """Remove these requests; most of them are near the queue's front."""
    passed = []
    while gone:
        request = waiting.popleft()
        if request in gone:
            gone.remove(request)
        else:
            passed.append(request)
    waiting.extendleft(reversed(passed))


Contender: TypeAlias = Callable[[Workload, Device, BatchLimits], Record]

ENGINE, WHOLE = "engine", "whole model"
CONTENDERS: Mapping[str, Contender] = {ENGINE: run_engine, WHOLE: run_whole}


@dataclass(frozen=True, slots=True)
class Scenario:
    """A device, its limits, and how requests are drawn and judged."""

    device: Device
    limits: BatchLimits  # for every contender
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
        record = CONTENDERS[contender](work, self.device, self.limits)
        return np.array(record.answered_s) - work.arrival_s

    def capacity(self, contender: str, traffic: Traffic) -> float:
        """Return answers per second when all requests wait from the start."""
        return self.num_requests / float(self.latencies_s(contender, traffic, math.inf).max())

    def sustainable(self, contender: str, traffic: Traffic, capacity: float) -> float:
        """Return the highest rate whose p99 latency keeps the bound, by bisection.

        To about 1 % of the capacity; 0 if even a hundredth of it breaks the bound.
        """
        low, high = 0.01 * capacity, 1.02 * capacity
        if not self._keeps_bound(contender, traffic, low):
            return 0.0
        while high - low > 0.01 * capacity:
            middle = (low + high) / 2
            kept = self._keeps_bound(contender, traffic, middle)
            low, high = (middle, high) if kept else (low, middle)
        return low

    def _keeps_bound(self, contender: str, traffic: Traffic, rate: float) -> bool:
        latency_s = self.latencies_s(contender, traffic, rate)
        return float(np.percentile(latency_s, 99, method="higher")) <= self.bound_s(traffic)
