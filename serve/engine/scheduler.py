"""Which rows run next: bookkeeping only, without clock, threads or ONNX Runtime.

Rows run together where the measured costs (`serve.engine.cost_model`) say that it saves time: what
padding costs against what a launch costs. The deepest batch goes first, so that rows leave as soon
as they can. New rows start when no batch of their priority is ready, or when their deadline is
close; many of like length then start together (`serve.engine.batch_selection`).

Rows of a better priority may keep rows in flight back for `max_hold_passes`, counted from their
admission, or from their start where they started later than that.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import attrgetter

from serve.engine.batch import Batch
from serve.engine.batch_selection import SizeLimits
from serve.engine.cost_model import CostModel
from serve.engine.merge_policy import ENOUGH_IN_HASTE, BatchGroup, enough_rows, should_merge
from serve.engine.row import Row
from serve.engine.waiting_queue import WaitingQueue


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """How large a batch may grow, and how long one may be held back.

    Attributes:
        max_rows: rows in a batch.
        max_tokens: rows times the longest row, so that one batch's segment stays short.
        max_hold_passes: how long rows in flight may be kept back, as a multiple of what the longest
            of them alone takes through the whole model.
        aging_s: waiting so much longer makes up for one priority less.
        in_flight: batches that are run at a time: while one's answers travel to the host and are
            judged, a device has the next to do.
    """

    max_rows: int = 64
    max_tokens: int = 2048
    max_hold_passes: float = 5.0
    aging_s: float = 5.0
    in_flight: int = 1


class Scheduler:
    """New rows that wait, and batches in flight."""

    def __init__(self, limits: BatchLimits, costs: CostModel) -> None:
        """Start empty.

        Args:
            limits: bounds on batches.
            costs: what batches cost; followed as it learns.
        """
        self._limits, self._costs = limits, costs
        # Not in the queue yet: a row that takes the fast path needs no place there.
        self._arrivals: list[Row] = []
        self._waiting = WaitingQueue(limits.aging_s)
        self._groups: list[BatchGroup] = []

    def __bool__(self) -> bool:
        return bool(self._arrivals or self._waiting or self._groups)

    @property
    def _size_limits(self) -> SizeLimits:
        limits = SizeLimits(self._limits.max_rows, self._limits.max_tokens)
        return limits.narrowed(self._costs.remaining(0))

    def add(self, rows: Iterable[Row]) -> None:
        """Take in new rows, in order."""
        self._arrivals += rows

    def requeue(self, batch: Batch, now_s: float) -> None:
        """Take back a batch after a run; an empty one is dropped."""
        if not batch.rows:
            return
        own = BatchGroup.of(batch)
        group = next((group for group in self._groups if self._joins(group, own, now_s)), None)
        if group:
            group.add(batch)
        else:
            group = own
            self._groups.append(group)
        self._set_due(group)

    def hold(self, batch: Batch, started_s: float) -> None:
        """Set the start of the batch's hold time: its admission, or its start if that was late."""
        admitted_s = batch.rows[0].admitted_s
        in_time = started_s < admitted_s + self._hold_s(batch.longest)
        batch.held_from_s = admitted_s if in_time else started_s

    def drop_expired(self, now_s: float) -> list[Row]:
        """Remove and return the waiting rows that are cancelled or too late."""
        self._queue_arrivals()
        return self._waiting.drop_expired(now_s)

    def pop_single(self, takes: Callable[[Row], bool]) -> Row | Batch | None:
        """Remove and return the only row there is, if `takes` accepts it; in flight, its batch."""
        arrivals, waiting, groups = self._arrivals, self._waiting, self._groups
        if len(arrivals) + len(waiting) + sum([group.num_rows for group in groups]) != 1:
            return None
        if groups:
            return self._pop(groups[0])[0] if takes(groups[0].batches[0].rows[0]) else None
        if not takes(arrivals[0] if arrivals else waiting.first):
            return None
        return arrivals.pop() if arrivals else waiting.pop_only()

    def schedule(self, now_s: float) -> list[Batch]:
        """Remove and return the batches to be merged and run next, all at one depth."""
        self._queue_arrivals()
        if not self._waiting and len(self._groups) == 1:
            return self._pop(self._groups[0])
        chosen = self._choose(self._ready(now_s), now_s)
        if chosen.batches:
            return self._pop(chosen)
        ahead = self._costs.remaining(0)
        batch = Batch(self._waiting.pop(ahead, self._size_limits, now_s))
        self.hold(batch, now_s)
        return [batch]

    def due_s(self, level: int, now_s: float) -> float:
        """Return when other rows go before a batch of this priority: now, if theirs is better."""
        groups = self._ready(now_s)
        if any([group.level < level for group in groups]):
            return now_s
        return min([self._due_s(group, level) for group in groups], default=math.inf)

    def _queue_arrivals(self) -> None:
        """Give new rows their places in the queue, as it must be before a choice is made."""
        if self._arrivals:
            self._waiting.add(self._arrivals, self._costs)
            self._arrivals = []

    def _set_due(self, group: BatchGroup) -> None:
        """Work out the time from which the group goes before others."""
        group.held_until_s = group.held_from_s + self._hold_s(group.longest)
        if group.deadline_s < math.inf:
            run_s = self._costs.remaining_s(group.depth, group.num_rows, group.longest)
            group.start_by_s = group.deadline_s - 2 * run_s

    def _hold_s(self, longest: int) -> float:
        return self._limits.max_hold_passes * self._costs.remaining_s(0, 1, longest)

    def _due_s(self, group: BatchGroup, level: int) -> float:
        """Return when the group goes before any other, where `level` is the best of all."""
        due_s = min(group.held_until_s, group.start_by_s)
        return due_s + (group.level - level) * self._limits.aging_s

    def _ready(self, now_s: float) -> list[BatchGroup]:
        """Return what could run next: groups in flight, and new rows as far as the first tells."""
        if not self._waiting:
            return self._groups
        first = self._waiting.first
        level = self._waiting.level(first, now_s)
        num_rows = min(len(self._waiting), self._size_limits.room(first.num_tokens))
        new = BatchGroup(0, level, first.deadline_s, math.inf, num_rows, first.num_tokens)
        self._set_due(new)
        return [*self._groups, new]

    def _choose(self, groups: list[BatchGroup], now_s: float) -> BatchGroup:
        """Return the group that is due, else the deepest of the best priority.

        If a group's latest start falls within the chosen group's next segment, that group runs
        first, provided it has rows enough.
        """
        level = min([group.level for group in groups])
        behind_s = [(group.level - level) * self._limits.aging_s for group in groups]
        due_s, due = min([(self._due_s(group, level), i) for i, group in enumerate(groups)])
        if due_s <= now_s:
            return groups[due]
        best = [group for group in groups if group.level == level]
        chosen = max(best, key=attrgetter("depth"))
        start_by_s, first = min([(g.start_by_s + behind_s[i], i) for i, g in enumerate(groups)])
        if start_by_s < math.inf and self._enough(groups[first]):
            run_s = self._costs.segment_s(chosen.depth, chosen.num_rows, chosen.longest)
            if start_by_s < now_s + run_s:
                return groups[first]
        return chosen

    def _enough(self, group: BatchGroup) -> bool:
        """Tell whether the rows are enough for batches of their own."""
        ahead = self._costs.remaining(group.depth)
        return group.num_rows >= enough_rows(
            ahead, group.longest, self._size_limits, ENOUGH_IN_HASTE
        )

    def _joins(self, group: BatchGroup, own: BatchGroup, now_s: float) -> bool:
        """Tell whether a batch fits into the group, and it pays to run together."""
        if group.depth != own.depth:
            return False
        ahead = self._costs.remaining(own.depth)
        return should_merge(self._costs, ahead, self._size_limits, group, own, now_s)

    def _pop(self, group: BatchGroup) -> list[Batch]:
        self._groups.remove(group)
        return group.batches
