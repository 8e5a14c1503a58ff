"""The two contenders that finish a batch before they begin the next.

Whole model: the batch runs through the whole model in one go, without early exit.
Run to completion: the batch runs segment by segment. Rows leave at their exits and the batch
shrinks, but no row joins until it is finished.

They get every advantage: the device's true cost, the engine's bounds on rows and tokens, and the
engine's own choice of the rows that start together (`serve.engine.batch_selection`).
"""

from collections import deque
from collections.abc import Callable
from itertools import islice

from loadtest.simulator.device import Device
from loadtest.simulator.workload import Record, Workload
from serve.engine.batch_selection import SizeLimits, select_batch
from serve.engine.cost_model import CostModel, SegmentCost
from serve.engine.scheduler import BatchLimits
from serve.engine.waiting_queue import LOOKAHEAD, likely_cost

# Runs a batch from this time on, and returns when it is finished.
Finish = Callable[[list[int], float], float]


def run_whole(work: Workload, device: Device, limits: BatchLimits) -> Record:
    """Serve the workload with batches of the whole model."""
    tokens, record, cost = work.tokens.tolist(), Record(len(work)), device.whole_cost()

    def finish(batch: list[int], now_s: float) -> float:
        now_s += device.whole_s(len(batch), max(tokens[i] for i in batch))
        for request in batch:
            record.answer(request, now_s, len(device))
        return now_s

    _serve(work, _narrowed(limits, cost), cost, finish)
    return record


def run_to_completion(work: Workload, device: Device, limits: BatchLimits) -> Record:
    """Serve the workload with batches that only shrink."""
    # The engine's own estimate serves these batches better than the true shares do.
    ahead = CostModel.of(device.costs()).remaining(0)
    cost = likely_cost(ahead, _narrowed(limits, ahead))
    tokens, exits, record = work.tokens.tolist(), work.exits.tolist(), Record(len(work))

    def finish(batch: list[int], now_s: float) -> float:
        for index in range(len(device)):
            now_s += device.run_s(index, len(batch), max(tokens[i] for i in batch))
            for request in batch:
                if exits[request] == index + 1:
                    record.answer(request, now_s, index + 1)
            batch = [i for i in batch if exits[i] > index + 1]
            if not batch:
                break
        return now_s

    _serve(work, _narrowed(limits, cost), cost, finish)
    return record


def _narrowed(limits: BatchLimits, cost: SegmentCost) -> SizeLimits:
    """Return limits narrowed as the engine's: on a CPU longer batches only make others wait."""
    return SizeLimits(limits.max_rows, limits.max_tokens).narrowed(cost)


def _serve(work: Workload, limits: SizeLimits, cost: SegmentCost, finish: Finish) -> None:
    """Make the best batch that the waiting requests allow, finish it, and so on.

    Args:
        work: the requests.
        limits: on a batch.
        cost: of a batch from its first segment to its last.
        finish: runs a batch.
    """
    arrival_s, tokens = work.arrival_s.tolist(), work.tokens.tolist()
    waiting: deque[int] = deque()
    arrived, now_s = 0, 0.0
    while waiting or arrived < len(work):
        if not waiting:
            now_s = max(now_s, arrival_s[arrived])
        while arrived < len(work) and arrival_s[arrived] <= now_s:
            waiting.append(arrived)
            arrived += 1
        candidates = list(islice(waiting, LOOKAHEAD * limits.max_rows))
        places = select_batch([tokens[i] for i in candidates], cost, limits)
        batch = [candidates[place] for place in places]
        _remove(waiting, set(batch))
        now_s = finish(batch, now_s)


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
