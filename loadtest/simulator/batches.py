"""The contender that serves the whole model, one batch after the other, without early exit.

It gets every advantage: the device's true cost, the engine's bounds on rows and tokens, and the
engine's own choice of the rows that start together (`serve.engine.batch_selection`).
"""

from collections import deque
from itertools import islice

from loadtest.simulator.device import Device
from loadtest.simulator.workload import Record, Workload
from serve.engine.batch_selection import SizeLimits, select_batch
from serve.engine.scheduler import BatchLimits
from serve.engine.waiting_queue import LOOKAHEAD


def run_whole(work: Workload, device: Device, limits: BatchLimits) -> Record:
    """Make the best batch that the waiting requests allow, finish it, and so on."""
    arrival_s, tokens = work.arrival_s.tolist(), work.tokens.tolist()
    record, cost = Record(len(work)), device.whole_cost()
    # Narrowed as the engine's: on a CPU longer batches only make others wait.
    sizes = SizeLimits(limits.max_rows, limits.max_tokens).narrowed(cost)
    waiting: deque[int] = deque()
    arrived, now_s = 0, 0.0
    while waiting or arrived < len(work):
        if not waiting:
            now_s = max(now_s, arrival_s[arrived])
        while arrived < len(work) and arrival_s[arrived] <= now_s:
            waiting.append(arrived)
            arrived += 1
        candidates = list(islice(waiting, LOOKAHEAD * sizes.max_rows))
        places = select_batch([tokens[i] for i in candidates], cost, sizes)
        batch = [candidates[place] for place in places]
        _remove(waiting, set(batch))
        now_s += device.whole_s(len(batch), max(tokens[i] for i in batch))
        for request in batch:
            record.answer(request, now_s, len(device))
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
