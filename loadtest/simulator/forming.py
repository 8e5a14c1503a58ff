"""The best batch that the waiting requests allow, for contenders that are not the engine.

They get every advantage: the true cost of the device and of the exits to come, the same bounds on
rows and tokens as the engine, and an exact search for the cheapest company of the oldest request.
"""

import math
from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from loadtest.simulator.device import SegmentCost
from loadtest.simulator.record import Record
from loadtest.simulator.workload import Workload
from serve.scheduler import WaveLimits

Lengths: TypeAlias = NDArray[np.int64]  # ascending

_LOOKAHEAD = 4  # times the rows of a batch


class Former:
    """Waiting requests, by priority and age, and the batches made of them."""

    def __init__(self, work: Workload, limits: WaveLimits, cost: SegmentCost) -> None:
        """Prepare for one workload.

        Args:
            work: the requests.
            limits: bounds on rows and on padded tokens, as the engine's.
            cost: what a batch costs from its first segment to its last.
        """
        self._tokens = work.tokens.tolist()
        self._arrival_s = work.arrival_s.tolist()
        self._deadline_s = work.deadline_s.tolist()
        self._hurried = min(self._deadline_s) < math.inf
        self._priority = work.priority.tolist()
        self._limits, self._cost = limits, cost
        # Highest priority first.
        self._queues: dict[int, deque[int]] = {
            level: deque() for level in sorted(set(self._priority))
        }
        self._next = 0

    @property
    def more(self) -> bool:
        """Whether anybody waits or is still to come."""
        return any(self._queues.values()) or self._next < len(self._arrival_s)

    def wait(self, now_s: float) -> float:
        """Let everybody in who has come; if nobody waits, wait for the next. Return the time."""
        if not any(self._queues.values()):
            now_s = max(now_s, self._arrival_s[self._next])
        while self._next < len(self._arrival_s) and self._arrival_s[self._next] <= now_s:
            self._queues[self._priority[self._next]].append(self._next)
            self._next += 1
        return now_s

    def take(self, now_s: float, record: Record) -> list[int]:
        """Return the next batch; requests that are too late to start are given up."""
        if self._hurried:
            self._give_up_late(now_s, record)
        looked_at = list(islice(self._in_order(), _LOOKAHEAD * self._limits.max_rows))
        if not looked_at:
            return []
        chosen = self._best(looked_at)
        for queue in self._queues.values():
            self._remove(queue, chosen)
        return chosen

    def _in_order(self) -> Iterable[int]:
        for queue in self._queues.values():
            yield from queue

    def _give_up_late(self, now_s: float, record: Record) -> None:
        for queue in self._queues.values():
            late = {i for i in queue if self._deadline_s[i] <= now_s}
            for request in late:
                record.give_up(request)
            self._remove(queue, late)

    def _best(self, looked_at: list[int]) -> list[int]:
        """Return the batch for the first request: the larger of two that are best in their way.

        With few waiting, the split that costs least for all of them decides; with many, the
        cheapest company. Each alone loses a tenth or more somewhere.
        """
        lengths = np.array([self._tokens[i] for i in looked_at])
        order = np.argsort(lengths, kind="stable")
        place = int(np.flatnonzero(order == 0)[0])
        windows = self._split(lengths[order], place), self._cheapest(lengths[order], place)
        first, last = max(windows, key=lambda window: window[1] - window[0])
        return [looked_at[i] for i in sorted(order[first : last + 1].tolist())]

    def _split(self, lengths: Lengths, place: int) -> tuple[int, int]:
        """Cut ascending lengths into batches of least total cost; return the one at `place`."""
        least, cut = np.zeros(len(lengths) + 1), [0] * (len(lengths) + 1)
        for stop, longest in enumerate(lengths.tolist(), 1):
            fitting = min(self._limits.max_rows, self._limits.max_tokens // longest, stop)
            rows = np.arange(1, max(fitting, 1) + 1)
            totals = least[stop - rows] + self._seconds(rows, longest)
            best = int(totals.argmin())
            least[stop], cut[stop] = totals[best], stop - 1 - best
        stop = len(lengths)
        while cut[stop] > place:
            stop = cut[stop]
        return cut[stop], stop - 1

    def _cheapest(self, lengths: Lengths, place: int) -> tuple[int, int]:
        """Return the window around `place` in ascending lengths that costs least per real token."""
        # Windows [first, last]: in the matrices, first runs down, last across.
        firsts, lasts = np.arange(place + 1)[:, None], np.arange(place, len(lengths))[None, :]
        rows, longest = lasts - firsts + 1, lengths[lasts]
        real = np.concatenate([[0], np.cumsum(lengths)])
        per_token = self._seconds(rows, longest) / (real[lasts + 1] - real[firsts])
        fits = (rows <= self._limits.max_rows) & (rows * longest <= self._limits.max_tokens)
        fits |= rows == 1
        first, last = np.unravel_index(np.where(fits, per_token, np.inf).argmin(), rows.shape)
        return int(first), place + int(last)

    def _seconds(self, rows: Any, longest: Any) -> Any:
        """Return what batches cost, of numbers or arrays of rows and tokens."""
        return self._cost.seconds(rows, longest)

    @staticmethod
    def _remove(queue: deque[int], gone: Iterable[int]) -> None:
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
