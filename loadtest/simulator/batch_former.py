"""The best batch that the waiting requests allow, for contenders other than the engine.

They get every advantage: the device's true cost, the engine's bounds on rows and tokens, and the
engine's own choice of the rows that start together (`serve.engine.batch_selection`).
"""

import math
from collections import deque
from collections.abc import Iterable
from itertools import islice

from loadtest.simulator.record import Record
from loadtest.simulator.workload import Workload
from serve.engine.batch_selection import SizeLimits, select_batch
from serve.engine.cost_model import SegmentCost
from serve.engine.scheduler import BatchLimits
from serve.engine.waiting_queue import LOOKAHEAD


class BatchFormer:
    """Waiting requests, by priority and age, and the batches made of them."""

    def __init__(self, work: Workload, limits: BatchLimits, cost: SegmentCost) -> None:
        """Prepare for one workload.

        Args:
            work: the requests.
            limits: bounds on rows and on padded tokens.
            cost: of a batch from its first segment to its last.
        """
        self._tokens = work.tokens.tolist()
        self._arrival_s = work.arrival_s.tolist()
        self._deadline_s = work.deadline_s.tolist()
        self._any_deadline = min(self._deadline_s) < math.inf
        self._priority = work.priority.tolist()
        # Narrowed as the engine's: on a CPU longer batches would only make others wait.
        self._limits = SizeLimits(limits.max_rows, limits.max_tokens).narrowed(cost)
        self._cost = cost
        # Highest priority first.
        self._queues: dict[int, deque[int]] = {
            level: deque() for level in sorted(set(self._priority))
        }
        self._next = 0

    @property
    def more(self) -> bool:
        """Whether requests are waiting or still to come."""
        return any(self._queues.values()) or self._next < len(self._arrival_s)

    def wait(self, now_s: float) -> float:
        """Queue the requests that have arrived, and return the time.

        If no request waits, the time goes on to the next arrival.
        """
        if not any(self._queues.values()):
            now_s = max(now_s, self._arrival_s[self._next])
        while self._next < len(self._arrival_s) and self._arrival_s[self._next] <= now_s:
            self._queues[self._priority[self._next]].append(self._next)
            self._next += 1
        return now_s

    def take(self, now_s: float, record: Record) -> list[int]:
        """Return the next batch; requests whose deadline has passed are given up."""
        if self._any_deadline:
            self._drop_expired(now_s, record)
        in_order = (request for queue in self._queues.values() for request in queue)
        candidates = list(islice(in_order, LOOKAHEAD * self._limits.max_rows))
        if not candidates:
            return []
        lengths = [self._tokens[i] for i in candidates]
        chosen = [candidates[place] for place in select_batch(lengths, self._cost, self._limits)]
        for queue in self._queues.values():
            self._remove(queue, chosen)
        return chosen

    def _drop_expired(self, now_s: float, record: Record) -> None:
        for queue in self._queues.values():
            expired = {i for i in queue if self._deadline_s[i] <= now_s}
            for request in expired:
                record.give_up(request)
            self._remove(queue, expired)

    @staticmethod
    def _remove(queue: deque[int], gone: Iterable[int]) -> None:
        """Remove these requests; most of them are near the queue's front."""
        wanted = set(gone)
        passed = []
        left = len(wanted)
        while left and queue:
            request = queue.popleft()
            if request in wanted:
                left -= 1
            else:
                passed.append(request)
        queue.extendleft(reversed(passed))
