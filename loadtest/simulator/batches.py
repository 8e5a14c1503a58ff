"""The two contenders that finish a batch before they begin the next.

Whole model: the batch runs through the whole model in one go, without early exit.
Run to completion: the batch runs segment by segment. Rows leave at their exits and the batch
shrinks, but no row joins until it is finished.
"""

from collections.abc import Callable

from loadtest.simulator.batch_former import BatchFormer
from loadtest.simulator.device import Device
from loadtest.simulator.record import Record
from loadtest.simulator.workload import Workload
from serve.engine.batch_selection import SizeLimits
from serve.engine.cost_model import CostModel
from serve.engine.scheduler import BatchLimits
from serve.engine.waiting_queue import likely_cost

# Called with how many more requests have been simulated.
Progress = Callable[[int], None]
# Runs a batch from this time on, and returns when it is finished.
Finish = Callable[[list[int], float], float]


def run_whole(work: Workload, device: Device, limits: BatchLimits, progress: Progress) -> Record:
    """Serve the workload with batches of the whole model."""
    former = BatchFormer(work, limits, device.whole_cost())
    tokens, record = work.tokens.tolist(), Record.of(len(work))

    def finish(batch: list[int], now_s: float) -> float:
        longest = max(tokens[i] for i in batch)
        seconds = device.whole_s(len(batch), longest)
        record.busy_s += seconds
        record.run(len(batch), sum(tokens[i] for i in batch), longest)
        for request in batch:
            record.answer(request, now_s + seconds, len(device))
        return now_s + seconds

    return _serve(former, record, finish, progress)


def run_to_completion(
    work: Workload, device: Device, limits: BatchLimits, progress: Progress
) -> Record:
    """Serve the workload with batches that only shrink."""
    # The engine's own estimate serves these batches better than the true shares do.
    ahead = CostModel.of(device.costs()).remaining(0)
    narrow = SizeLimits(limits.max_rows, limits.max_tokens).narrowed(ahead)
    former = BatchFormer(work, limits, likely_cost(ahead, narrow))
    record = Record.of(len(work))
    return _serve(former, record, _Completion(work, device, record), progress)


def _serve(former: BatchFormer, record: Record, finish: Finish, progress: Progress) -> Record:
    now_s = 0.0
    while former.more:
        now_s = former.wait(now_s)
        batch = former.take(now_s, record)
        if batch:
            now_s = finish(batch, now_s)
            progress(len(batch))
    return record


class _Completion:
    """Runs one batch to its end, segment by segment."""

    def __init__(self, work: Workload, device: Device, record: Record) -> None:
        self._tokens, self._exits = work.tokens.tolist(), work.exits.tolist()
        self._deadline_s = work.deadline_s.tolist()
        self._device, self._record = device, record

    def __call__(self, batch: list[int], now_s: float) -> float:
        """Return the time at which the last row has left."""
        began_s, alive = now_s, batch
        for index in range(len(self._device)):
            # Late rows leave with the best answer they have, as in the engine.
            if index:
                late = [i for i in alive if self._deadline_s[i] <= now_s]
                alive = self._answer(late, alive, now_s, index)
            if not alive:
                break
            lengths = [self._tokens[i] for i in alive]
            longest = max(lengths)
            now_s += self._device.run_s(index, len(alive), longest)
            self._record.run(len(alive), sum(lengths), longest)
            leaving = [i for i in alive if self._exits[i] == index + 1]
            alive = self._answer(leaving, alive, now_s, index + 1)
        self._record.busy_s += now_s - began_s
        return now_s

    def _answer(self, leaving: list[int], rows: list[int], now_s: float, layer: int) -> list[int]:
        """Answer the leaving rows and return the others."""
        for request in leaving:
            self._record.answer(request, now_s, layer)
        gone = set(leaving)
        return [i for i in rows if i not in gone] if gone else rows
