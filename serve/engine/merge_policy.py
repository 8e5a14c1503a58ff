"""Whether rows go on together: where it saves time, and nobody waits for others in vain."""

import math
import sys
from typing import NamedTuple

from serve.engine.batch_selection import Bounds
from serve.engine.cost_model import CostModel, SegmentCost

# By what rows of a worse priority may lengthen the way of those that they go with. With less, a
# GPU's batches become so small that even the better ones wait longer.
SLOWER = 3.0

# Rows of a batch are enough by themselves, without worse ones, with this share of a full one's rows
# per second. For the sake of a deadline fewer are.
ENOUGH = 0.95
ENOUGH_IN_HASTE = 0.8


class Load(NamedTuple):
    """Rows that would go on as one batch.

    Attributes:
        num_rows: how many.
        longest: tokens of the longest.
        level: the best priority among them.
        deadline_s: the earliest.
    """

    num_rows: int
    longest: int
    level: int
    deadline_s: float


def should_merge(
    costs: CostModel, bounds: Bounds, depth: int, one: Load, other: Load, now_s: float
) -> bool:
    """Tell whether two batches may and should go on together.

    Args:
        costs: as they are known.
        bounds: on a batch.
        depth: segments that both have been through, the deeper of two.
        one: the first.
        other: the second.
        now_s: on the clock of deadlines.
    """
    num_rows, longest = one.num_rows + other.num_rows, max(one.longest, other.longest)
    if num_rows > bounds.room(longest):
        return False
    ahead = costs.remaining(depth)
    together_s = ahead.seconds(num_rows, longest) + costs.join_s(num_rows, longest)
    if together_s > sum([ahead.seconds(load.num_rows, load.longest) for load in (one, other)]):
        return False
    return not any(
        _suffers(ahead, bounds, load, mate, together_s, now_s)
        for load, mate in ((one, other), (other, one))
    )


def rows_beside(ahead: SegmentCost, num_rows: int, longest: int, bounds: Bounds) -> int:
    """Return how many rows of a worse priority may go with so many, of the same length.

    As many as do not make it `SLOWER`; more where the batch would not be worth its launches.
    """
    each_s = ahead.seconds(1, longest) - ahead.fixed_s
    if not each_s:
        return sys.maxsize
    bearable = int((SLOWER - 1) * ahead.seconds(num_rows, longest) / each_s)
    return max(bearable, enough_rows(ahead, longest, bounds, ENOUGH) - num_rows)


def enough_rows(ahead: SegmentCost, longest: int, bounds: Bounds, share: float) -> int:
    """Return how many rows of this length do this share of a full batch's rows per second.

    Where launches cost little (a CPU) one or a few; on a GPU most of a full batch.
    """
    each_s = ahead.seconds(1, longest) - ahead.fixed_s
    full = bounds.room(longest)
    rate = share * full / max(ahead.seconds(full, longest), 1e-9)
    return min(full, math.ceil(rate * ahead.fixed_s / max(1 - rate * each_s, 1e-9)))


def _suffers(
    ahead: SegmentCost, bounds: Bounds, load: Load, mate: Load, together_s: float, now_s: float
) -> bool:
    """Tell whether rows are kept back by worse ones, or come too late for others' sake."""
    alone_s = ahead.seconds(load.num_rows, load.longest)
    kept_back = load.level < mate.level and together_s > SLOWER * alone_s
    late = now_s + alone_s <= load.deadline_s < now_s + together_s
    if not kept_back and not late:
        return False
    share = ENOUGH_IN_HASTE if late else ENOUGH
    return load.num_rows >= enough_rows(ahead, load.longest, bounds, share)
