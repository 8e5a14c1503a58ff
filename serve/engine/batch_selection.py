"""Which waiting rows start together: rows of like length, so that little is padded.

The first row always starts, with a window around it in order of length: its batch if all that wait
are cut into the batches that cost least in total.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import pairwise
from typing import NamedTuple

from serve.engine.cost_model import SegmentCost

# A batch is long enough once its launches take a fiftieth of its time.
ENOUGH = 50

# No batch needs to be shorter than that: what few tokens cost is measured least well.
LEAST_TOKENS = 512

# How many lengths are told apart, up to the longest.
LENGTHS = 128


class SizeLimits(NamedTuple):
    """How large a batch may grow: in rows, and in rows times the longest row."""

    max_rows: int
    max_tokens: int

    def room(self, longest: int) -> int:
        """Return how many rows of this length a batch may hold."""
        return max(1, min(self.max_rows, self.max_tokens // longest))

    def launch_bound(self, cost: SegmentCost) -> bool:
        """Tell whether no batch is long enough, see `ENOUGH`."""
        return (self.max_tokens + 1) * cost.per_token_s < ENOUGH * cost.fixed_s

    def narrowed(self, cost: SegmentCost) -> "SizeLimits":
        """Return narrower limits where more tokens would save next to nothing.

        A longer batch would only make later rows wait.
        """
        saving = ENOUGH * cost.fixed_s
        if saving >= self.max_tokens * cost.per_token_s:
            return self
        enough = max(LEAST_TOKENS, int(saving / cost.per_token_s))
        return self._replace(max_tokens=min(self.max_tokens, enough))


def select_batch(lengths: Sequence[int], cost: SegmentCost, limits: SizeLimits) -> list[int]:
    """Return the places of the rows that start together, ascending; place 0 is among them.

    Args:
        lengths: tokens of each waiting row, first to start first.
        cost: cost of the way ahead, from the first segment to the last.
        limits: on a batch.
    """
    num, lead, longest = len(lengths), lengths[0], max(lengths)
    if min(lengths) == longest:
        return list(range(min(num, limits.room(lead))))
    if num <= limits.room(longest) and _padding_s(lengths, longest, cost) <= cost.fixed_s:
        return list(range(num))
    order = sorted(range(num), key=lengths.__getitem__)  # stable: first come, first served
    ascending = [lengths[i] for i in order]
    place = bisect_left(ascending, lead)
    first, stop = least_total(ascending, place, cost, limits)
    return sorted(order[first:stop])


def _padding_s(lengths: Sequence[int], longest: int, cost: SegmentCost) -> float:
    """Return what it costs to pad all to the longest: more than any split of them could save."""
    return len(lengths) * _row_s(cost, longest) - sum([_row_s(cost, n) for n in lengths])


def least_total(
    lengths: list[int], place: int, cost: SegmentCost, limits: SizeLimits
) -> tuple[int, int]:
    """Cut all into windows of least total cost; return the one [first, stop) at `place`.

    least[stop] = min over first of least[first] + fixed + (stop - first) * each[stop]. Rows of one
    length cost the same, and in a window of longer rows they cost more. So a window ends where the
    length changes, or is full: few of all places are looked at. Of texts with more than `LENGTHS`
    lengths, those that are nearly as long count as one length.
    """
    step = -(-lengths[-1] // LENGTHS)
    like = [-(-n // step) for n in lengths]
    ends = [*(i for i, (a, b) in enumerate(pairwise(like), 1) if a != b), len(lengths)]
    runs = [(end, limits.room(n), _row_s(cost, n)) for end in ends for n in [lengths[end - 1]]]
    least, cuts, places = {0: 0.0}, {0: 0}, [0]
    while (first := heappop(places)) < len(lengths):
        before_s, own = least[first] + cost.fixed_s, bisect_right(ends, first)
        for i in range(own, len(runs)):
            end, room, row_s = runs[i]
            middle, _, shorter_s = runs[(own + i) // 2]
            if (middle - first) * (row_s - shorter_s) > cost.fixed_s:
                break  # a cut there would save more than it costs, also in any longer window
            stop = min(end, first + room)
            total_s = before_s + (stop - first) * row_s
            if stop not in least:
                heappush(places, stop)
            if total_s < least.get(stop, math.inf):
                least[stop], cuts[stop] = total_s, first
            if stop < end:
                break
    stop = len(lengths)
    while cuts[stop] > place:
        stop = cuts[stop]
    return cuts[stop], stop


def _row_s(cost: SegmentCost, num_tokens: int) -> float:
    """Return what one row more costs, padding included."""
    return (cost.per_token_s + cost.per_token_pair_s * num_tokens) * num_tokens
