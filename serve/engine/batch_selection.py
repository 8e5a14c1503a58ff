"""Which waiting rows start together: rows of like length, so that little is padded.

The first row always starts, with a window around it in order of length: its batch if all that wait
are cut into the batches that cost least in total.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from serve.engine.cost_model import SegmentCost

# A batch is long enough once its launches take a fiftieth of its time.
ENOUGH = 50

# No batch needs to be shorter than that: what few tokens cost is measured least well.
LEAST_TOKENS = 512


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
    per_token_s, per_pair_s = cost.per_token_s, cost.per_token_pair_s
    padded_s = (per_token_s + per_pair_s * longest) * longest * len(lengths)
    return padded_s - sum([(per_token_s + per_pair_s * n) * n for n in lengths])


def least_total(
    lengths: list[int], place: int, cost: SegmentCost, limits: SizeLimits
) -> tuple[int, int]:
    """Cut all into windows of least total cost; return the one [first, stop) at `place`.

    least[stop] = min over first of least[first] + fixed + (stop - first) * each[stop]. A later
    `first` that has become better than an earlier one stays better, as rows only grow longer; so
    a queue of candidates, each with the stop from which it is best, finds them all in one go.
    """
    each = [(cost.per_token_s + cost.per_token_pair_s * n) * n for n in lengths]  # ascending
    earliest = [i + 1 - limits.room(n) for i, n in enumerate(lengths)]  # ascending
    least, cuts = [0.0], [0]
    queue: deque[tuple[int, int]] = deque()  # (first, stop from which it is best)
    for stop, row_s in enumerate(each, 1):
        new, since = stop - 1, stop
        while queue:
            old, old_since = queue[-1]
            better = bisect_right(each, (least[new] - least[old]) / (new - old), lo=new) + 1
            since = min(better, bisect_right(earliest, old, lo=new) + 1)
            if since > old_since:
                break
            queue.pop()
            since = stop
        if since <= len(each):
            queue.append((new, since))
        while len(queue) > 1 and queue[1][1] <= stop:
            queue.popleft()
        first = queue[0][0]
        least.append(least[first] + cost.fixed_s + (stop - first) * row_s)
        cuts.append(first)
    stop = len(each)
    while cuts[stop] > place:
        stop = cuts[stop]
    return cuts[stop], stop
