"""The engine's own scheduler and batches on a simulated device."""

import math
from bisect import bisect_right
from dataclasses import dataclass
from typing import Any, cast

from loadtest.simulator.device import Device
from loadtest.simulator.workload import Record, Workload
from serve.engine.batch import Batch, gather
from serve.engine.cost_model import CostModel
from serve.engine.row import Priority
from serve.engine.scheduler import BatchLimits, Scheduler


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
    """Serve the workload as the engine would.

    The scheduler knows the device's costs as its warm-up would have learned them.
    """
    costs = CostModel(device.costs(), device.join_per_token_s)
    scheduler = Scheduler(limits, costs)
    return _Engine(work, device, scheduler).run()


class _Engine:
    """One device and the engine's thread; while one works, the other waits."""

    def __init__(self, work: Workload, device: Device, scheduler: Any) -> None:
        self._device, self._scheduler = device, scheduler
        self._arrival_s = work.arrival_s.tolist()
        self._tokens, self._exits = work.tokens.tolist(), work.exits.tolist()
        self._record = Record(len(work))
        self._now_s = 0.0
        self._admitted = 0

    def run(self) -> Record:
        """Return the record of the whole workload."""
        while self._scheduler or self._admitted < len(self._arrival_s):
            if not self._scheduler:
                self._now_s = max(self._now_s, self._arrival_s[self._admitted])
            self._admit()
            self._step()
        return self._record

    def _admit(self) -> None:
        arrived = bisect_right(self._arrival_s, self._now_s, lo=self._admitted)
        if arrived > self._admitted:
            new = range(self._admitted, arrived)
            self._scheduler.add(
                [LightRow(each, self._tokens[each], self._arrival_s[each]) for each in new]
            )
            self._admitted = arrived

    def _step(self) -> None:
        batches = self._scheduler.schedule(self._now_s)
        batch = gather(batches) if len(batches) > 1 else batches[0]
        self._run_segment(batch, joined=len(batches) > 1)
        batch.depth += 1
        self._retire(batch)
        self._scheduler.requeue(batch, self._now_s)

    def _run_segment(self, batch: Batch, joined: bool) -> None:
        rows, longest = len(batch.rows), batch.longest
        self._now_s += self._device.run_s(batch.depth, rows, longest)
        if joined:
            self._now_s += self._device.join_s(rows, longest)

    def _retire(self, batch: Batch) -> None:
        """Answer the rows that leave here and take them out of the batch."""
        staying: list[Any] = []
        for row in cast(list[LightRow], batch.rows):
            if self._exits[row.request] > batch.depth:
                staying.append(row)
            else:
                self._record.answer(row.request, self._now_s, batch.depth)
        if len(staying) < len(batch.rows):
            batch.set_rows(staying)
