"""The two contenders that answer a batch before they begin the next.

Whole: the model in one go for the batch, without early exit. RunToCompletion: segment by segment;
rows leave at their exit and the batch shrinks, but no row joins until it is finished.
"""

from collections.abc import Callable

from loadtest.simulator.batch_former import Former
from loadtest.simulator.device import Device
from loadtest.simulator.record import Record
from loadtest.simulator.workload import Workload
from serve.engine.scheduler import BatchLimits
from serve.engine.waiting_queue import STAY

Progress = Callable[[int], None]


def run_whole(work: Workload, device: Device, limits: BatchLimits, tell: Progress) -> Record:
    """Serve the workload with batches of the whole model."""
    former = Former(work, limits, device.until([1.0] * len(device)))
    tokens, record = work.tokens.tolist(), Record.of(len(work))
    now_s = 0.0
    while former.more:
        now_s = former.wait(now_s)
        batch = former.take(now_s, record)
        if not batch:
            continue
        longest = max(tokens[i] for i in batch)
        seconds = device.whole_s(len(batch), longest)
        now_s += seconds
        record.busy_s += seconds
        record.run(len(batch), sum(tokens[i] for i in batch), longest)
        for request in batch:
            record.answer(request, now_s, len(device))
        tell(len(batch))
    return record


def run_to_completion(
    work: Workload, device: Device, limits: BatchLimits, tell: Progress
) -> Record:
    """Serve the workload with batches that only shrink."""
    # The price that the engine counts with serves the batches better than the true shares do.
    former = Former(work, limits, device.until([STAY] * len(device)))
    record = Record.of(len(work))
    finish = _Finisher(work, device, record)
    now_s = 0.0
    while former.more:
        now_s = former.wait(now_s)
        batch = former.take(now_s, record)
        if batch:
            now_s = finish(batch, now_s)
            tell(len(batch))
    return record


class _Finisher:
    """Runs one batch to its end."""

    def __init__(self, work: Workload, device: Device, record: Record) -> None:
        self._tokens, self._exits = work.tokens.tolist(), work.exits.tolist()
        self._deadline_s = work.deadline_s.tolist()
        self._device, self._record = device, record

    def __call__(self, batch: list[int], now_s: float) -> float:
        """Return the time at which the last row has left."""
        began_s, alive = now_s, batch
        for index, cost in enumerate(self._device.segments):
            # Late rows leave with the best answer they have, as in the engine.
            if index:
                alive = self._let_late_leave(alive, now_s, index)
            if not alive:
                break
            lengths = [self._tokens[i] for i in alive]
            longest = max(lengths)
            now_s += self._device.host_s + cost.seconds(len(alive), longest)
            self._record.run(len(alive), sum(lengths), longest)
            staying = []
            for request in alive:
                if self._exits[request] == index + 1:
                    self._record.answer(request, now_s, index + 1)
                else:
                    staying.append(request)
            alive = staying
        self._record.busy_s += now_s - began_s
        return now_s

    def _let_late_leave(self, alive: list[int], now_s: float, layer: int) -> list[int]:
        staying = []
        for request in alive:
            if self._deadline_s[request] <= now_s:
                self._record.answer(request, now_s, layer)
            else:
                staying.append(request)
        return staying
