"""The engine's own scheduler and batches on a simulated device."""

import math
from bisect import bisect_right
from dataclasses import dataclass
from typing import Any, cast

from loadtest.simulator.batches import Progress
from loadtest.simulator.device import Device
from loadtest.simulator.record import Record
from loadtest.simulator.workload import Workload
from serve.engine.batch import Batch, gather
from serve.engine.cost_model import CostModel
from serve.engine.row import Priority
from serve.engine.scheduler import BatchLimits, Scheduler

_SWEEP_EVERY_S = 0.005  # as the engine's core


@dataclass(slots=True, eq=False)
class LightRow:
    """The part of a row that the scheduler reads, and the row's request."""

    request: int
    num_tokens: int
    priority: Priority
    admitted_s: float
    deadline_s: float
    ahead_tokens: int
    cancelled: bool = False
    client: str = ""


def run_engine(work: Workload, device: Device, limits: BatchLimits, progress: Progress) -> Record:
    """Serve the workload as the engine would.

    The scheduler knows the device's costs as its warm-up would have learned them.
    """
    costs = CostModel.of(device.costs(), device.join_per_token_s)
    scheduler = Scheduler(len(device), limits, costs)
    return _Engine(work, device, scheduler).run(progress)


class _Engine:
    """One device and the engine's thread; while one works, the other waits."""

    def __init__(self, work: Workload, device: Device, scheduler: Any) -> None:
        self._device, self._scheduler = device, scheduler
        self._arrival_s, self._deadline_s = work.arrival_s.tolist(), work.deadline_s.tolist()
        self._tokens, self._exits = work.tokens.tolist(), work.exits.tolist()
        self._priority = [Priority(level) for level in work.priority.tolist()]
        self._any_deadline = min(self._deadline_s) < math.inf
        self._ahead_tokens = work.ahead_tokens.tolist()
        self._record = Record.of(len(work))
        self._now_s = self._swept_s = 0.0
        self._admitted = 0

    def run(self, progress: Progress) -> Record:
        """Return the record of the whole workload."""
        while self._scheduler or self._admitted < len(self._arrival_s):
            if not self._scheduler:
                self._now_s = max(self._now_s, self._arrival_s[self._admitted])
            self._admit(progress)
            if self._any_deadline:
                self._drop_expired()
            if self._scheduler:
                self._step()
        return self._record

    def _admit(self, progress: Progress) -> None:
        arrived = bisect_right(self._arrival_s, self._now_s, lo=self._admitted)
        if arrived > self._admitted:
            new = range(self._admitted, arrived)
            self._scheduler.add([self._row(request) for request in new])
            self._admitted = arrived
            progress(len(new))

    def _row(self, request: int) -> LightRow:
        return LightRow(
            request,
            self._tokens[request],
            self._priority[request],
            self._arrival_s[request],
            self._deadline_s[request],
            self._ahead_tokens[request],
        )

    def _drop_expired(self) -> None:
        """Give up waiting rows that are too late to start, as often as the core does."""
        if self._now_s < self._swept_s + _SWEEP_EVERY_S:
            return
        self._swept_s = self._now_s
        for row in self._scheduler.drop_expired(self._now_s):
            self._record.give_up(row.request)

    def _step(self) -> None:
        batches = self._scheduler.schedule(self._now_s)
        batch = gather(batches) if len(batches) > 1 else batches[0]
        if self._any_deadline and batch.depth:
            self._retire(batch, [row for row in batch.rows if row.deadline_s <= self._now_s])
        if batch.rows:
            self._run_segment(batch, joined=len(batches) > 1)
            batch.depth += 1
            exits, depth, rows = self._exits, batch.depth, cast(list[LightRow], batch.rows)
            self._retire(batch, [row for row in rows if exits[row.request] <= depth])
        self._scheduler.requeue(batch, self._now_s)

    def _run_segment(self, batch: Batch, joined: bool) -> None:
        rows, longest = len(batch.rows), batch.longest
        seconds = self._device.run_s(batch.depth, rows, longest)
        if joined:
            seconds += self._device.join_s(rows, longest)
        self._now_s += seconds
        self._record.busy_s += seconds
        self._record.run(rows, sum(row.num_tokens for row in batch.rows), longest)

    def _retire(self, batch: Batch, leaving: list[Any]) -> None:
        """Answer these rows and take them out of the batch."""
        if not leaving:
            return
        for row in leaving:
            self._record.answer(row.request, self._now_s, batch.depth)
        gone = set(map(id, leaving))
        batch.set_rows([row for row in batch.rows if id(row) not in gone])
