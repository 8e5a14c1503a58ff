"""Which batches in flight run together: those that save time by it, and make no row late."""

import math
import sys
from dataclasses import dataclass, field

from serve.engine.batch import Batch
from serve.engine.batch_selection import SizeLimits
from serve.engine.cost_model import CostModel, SegmentCost

# Rows of a worse priority may make a run up to this many times as long. With less, a GPU's batches
# become so small that even the rows of the better priority wait longer.
SLOWER = 3.0

# Rows are enough for a batch of their own, without rows of a worse priority, at this share of a
# full batch's rows per second. For the sake of a deadline fewer are enough.
ENOUGH = 0.95
ENOUGH_IN_HASTE = 0.8


@dataclass(slots=True, eq=False)
class BatchGroup:
    """Batches at one depth that run together.

    Without batches it stands for new rows that could start.

    Attributes:
        depth: segments that the rows have been through.
        level: the best priority among them.
        deadline_s: the earliest.
        held_from_s: start of the time for which the rows may be held back.
        num_rows: how many.
        longest: tokens of the longest.
        held_until_s: time until which the rows may be held back.
        start_by_s: when they must start for the sake of the deadline.
        batches: the batches.
    """

    depth: int
    level: int
    deadline_s: float
    held_from_s: float
    num_rows: int = 0
    longest: int = 0
    held_until_s: float = math.inf
    start_by_s: float = math.inf
    batches: list[Batch] = field(default_factory=list)

    @classmethod
    def of(cls, batch: Batch) -> "BatchGroup":
        """Return a group of one batch."""
        group = cls(batch.depth, batch.level, batch.deadline_s, batch.held_from_s)
        group.add(batch)
        return group

    def add(self, batch: Batch) -> None:
        """Take in a batch at the same depth."""
        self.batches.append(batch)
        self.level = min(self.level, batch.level)
        self.deadline_s = min(self.deadline_s, batch.deadline_s)
        self.held_from_s = min(self.held_from_s, batch.held_from_s)
        self.num_rows += len(batch.rows)
        self.longest = max(self.longest, batch.longest)


def should_merge(
    costs: CostModel,
    ahead: SegmentCost,
    limits: SizeLimits,
    one: BatchGroup,
    other: BatchGroup,
    now_s: float,
) -> bool:
    """Tell whether two batches at one depth may and should run on together.

    Args:
        costs: what segments cost, as far as known.
        ahead: cost of the segments that both have before them.
        limits: on a batch.
        one: the first.
        other: the second.
        now_s: on the clock of deadlines.
    """
    num_rows, longest = one.num_rows + other.num_rows, max(one.longest, other.longest)
    if num_rows > limits.room(longest):
        return False
    together_s = ahead.seconds(num_rows, longest) + costs.join_s(num_rows, longest)
    if together_s > sum([ahead.seconds(size.num_rows, size.longest) for size in (one, other)]):
        return False
    return not any(
        _suffers(ahead, limits, size, mate, together_s, now_s)
        for size, mate in ((one, other), (other, one))
    )


def rows_beside(ahead: SegmentCost, num_rows: int, longest: int, limits: SizeLimits) -> int:
    """Return how many rows of a worse priority may run with so many, of the same length.

    As many as keep the run within `SLOWER` times its own length, and at least as many as make the
    batch worth its launches.
    """
    each_s = ahead.seconds(1, longest) - ahead.fixed_s
    if not each_s:
        return sys.maxsize
    bearable = int((SLOWER - 1) * ahead.seconds(num_rows, longest) / each_s)
    return max(bearable, enough_rows(ahead, longest, limits, ENOUGH) - num_rows)


def enough_rows(ahead: SegmentCost, longest: int, limits: SizeLimits, share: float) -> int:
    """Return how many rows of this length do this share of a full batch's rows per second.

    One or a few where launches cost little (a CPU); most of a full batch on a GPU.
    """
    each_s = ahead.seconds(1, longest) - ahead.fixed_s
    full = limits.room(longest)
    rate = share * full / max(ahead.seconds(full, longest), 1e-9)
    return min(full, math.ceil(rate * ahead.fixed_s / max(1 - rate * each_s, 1e-9)))


def _suffers(
    ahead: SegmentCost,
    limits: SizeLimits,
    size: BatchGroup,
    mate: BatchGroup,
    together_s: float,
    now_s: float,
) -> bool:
    """Tell whether rows that are enough for themselves are kept back, or made late, by others."""
    own_s = ahead.seconds(size.num_rows, size.longest)
    kept_back = size.level < mate.level and together_s > SLOWER * own_s
    late = now_s + own_s <= size.deadline_s < now_s + together_s
    if not kept_back and not late:
        return False
    share = ENOUGH_IN_HASTE if late else ENOUGH
    return size.num_rows >= enough_rows(ahead, size.longest, limits, share)
