"""What a batch costs: segment time as a function of rows and tokens.

Each segment has a formula of its own, t = fixed + per_token * rows * tokens + per_pair * rows *
tokens^2. The warm-up finds it. Real runs tell the machine's present speed alone, because traffic of
one length says nothing about other lengths.
"""

import math
from collections.abc import Callable, Sequence
from itertools import product
from statistics import median
from time import perf_counter
from typing import NamedTuple

import numpy as np

from serve.engine.row import BatchStats

# The speed follows the median of so many runs, which a hiccup does not change.
RUNS = 32

# A run hangs that takes so many times what is expected, and so long.
HANG, LEAST_HANG_S = 30, 10.0

# A run that passes exits lasts no longer than this: new rows of a better priority wait for its end.
MAX_RUN_S = 0.04


class SegmentCost(NamedTuple):
    """One segment's time in seconds; each coefficient is 0 or more.

    Attributes:
        fixed_s: per run.
        per_token_s: per token, padding included.
        per_token_pair_s: per pair of tokens of one row, for attention.
    """

    fixed_s: float = 0.0
    per_token_s: float = 0.0
    per_token_pair_s: float = 0.0

    def seconds(self, num_rows: int, num_tokens: int) -> float:
        """Return the time of a batch of so many rows, padded to so many tokens."""
        return self[0] + (self[1] + self[2] * num_tokens) * num_rows * num_tokens


# Where nothing is measured: a launch costs as much as fifty tokens.
GUESS = SegmentCost(fixed_s=1e-3, per_token_s=2e-5)


class CostModel:
    """Segment times. Any thread reads them; the engine's thread reports runs."""

    def __init__(self, costs: Sequence[SegmentCost], join_per_token_s: float = 0.0) -> None:
        """Take each segment's cost, and what joining batches costs for each token."""
        self._measured = np.array(costs)  # (segments, 3)
        self._join_per_token_s = join_per_token_s
        self._ratios: list[float] = []  # of recent runs' times to their measured costs
        self._publish(1.0)

    def __len__(self) -> int:
        return len(self._costs)

    def segment_s(self, index: int, num_rows: int, num_tokens: int) -> float:
        """Return the time of one segment."""
        return self._costs[index].seconds(num_rows, num_tokens)

    def remaining_s(self, index: int, num_rows: int, num_tokens: int) -> float:
        """Return the time from segment `index` to the last, if no row leaves."""
        fixed, per_token, per_pair = self._remaining[index]
        return fixed + (per_token + per_pair * num_tokens) * num_rows * num_tokens

    def remaining(self, index: int) -> SegmentCost:
        """Return the figures of segments `index` to the last, taken together."""
        return self._remaining[index]

    def reach(self, index: int, num_rows: int, num_tokens: int, budget_s: float) -> int:
        """Return the depth that a batch reaches within so many seconds: one deeper at least."""
        last = len(self._costs)
        if self.remaining_s(index, num_rows, num_tokens) <= budget_s:
            return last
        end, took_s = index + 1, self.segment_s(index, num_rows, num_tokens)
        while end < last:
            took_s += self.segment_s(end, num_rows, num_tokens)
            if took_s > budget_s:
                break
            end += 1
        return end

    def shares(self, first: int, until: int, num_rows: int, num_tokens: int) -> list[float]:
        """Return what part each segment from `first` to `until` has in the time of all of them."""
        if first == until:
            return [1.0]
        times_s = [self.segment_s(i, num_rows, num_tokens) for i in range(first, until + 1)]
        total_s = sum(times_s)
        return [time_s / total_s for time_s in times_s]

    def join_s(self, num_rows: int, num_tokens: int) -> float:
        """Return the time of copying so many rows' hidden states together."""
        return self._join_per_token_s * num_rows * num_tokens

    def coefficients(self) -> list[SegmentCost]:
        """Return the present figures, one per segment."""
        return list(self._costs)

    def observe(
        self, first: int, until: int, num_rows: int, num_tokens: int, seconds: float
    ) -> None:
        """Learn from a run of some segments. One caller at a time; most calls only take a note."""
        known_s = sum([self.segment_s(i, num_rows, num_tokens) for i in range(first, until + 1)])
        self._ratios.append(seconds / known_s * self._speed)
        if len(self._ratios) == RUNS:
            self._publish((self._speed + median(self._ratios)) / 2)
            self._ratios = []

    def _publish(self, speed: float) -> None:
        # Whole lists are exchanged, so that other threads read either the old or the new costs.
        self._speed, costs = speed, speed * self._measured
        self._costs = [SegmentCost(*cost) for cost in costs.tolist()]
        sums = np.cumsum(costs[::-1], axis=0)[::-1]
        self._remaining = [SegmentCost(*cost) for cost in sums.tolist()]


def last_exit_in_time(
    until: int,
    costs: CostModel,
    size: tuple[int, int, int],
    deadline_s: float,
    clock: Callable[[], float],
) -> int:
    """Return an exit, `until` or an earlier one, that a run reaches within `MAX_RUN_S`.

    The run also ends before a deadline, but one segment runs in any case.

    Args:
        until: index of the exit at which the run would end.
        costs: what segments cost.
        size: the batch's depth, its rows, and the tokens of the longest.
        deadline_s: on the clock; infinite for none.
        clock: monotonic seconds.
    """
    if until == size[0]:
        return until
    free_s = MAX_RUN_S if deadline_s == math.inf else min(MAX_RUN_S, deadline_s - clock())
    return min(until, costs.reach(*size, free_s) - 1)


def fitted(runs: Sequence[tuple[int, int, float]]) -> SegmentCost:
    """Return the cost of least squared relative error, so that a small batch counts as a large one.

    Every set of coefficients that are not zero is tried; the best without a negative one is taken.

    Args:
        runs: rows, tokens and seconds of each run of one segment.
    """
    rows, tokens, seconds = np.array(runs).T
    basis = np.stack([np.ones_like(rows), rows * tokens, rows * tokens**2])  # (3, runs)
    x = basis / np.maximum(seconds, 1e-9)
    square, right = x @ x.T, x.sum(axis=1)
    scale = np.sqrt(square.diagonal())
    # Tokens explain a time before pairs of tokens do: few lengths do not tell them apart.
    a = square / np.outer(scale, scale) + np.diag([1e-6, 1e-6, 0.02])
    b = right / scale
    found = np.linalg.solve(np.where(_BOTH, a, np.eye(3)), np.where(_SETS, b, 0)[..., None])[..., 0]
    # At the minimum of each set x'Ax = b'x, so that the value there is -b'x/2.
    best = np.where((found >= 0).all(axis=1), found @ b, -np.inf).argmax()
    return SegmentCost(*(found[best] / scale).tolist())


_SETS = np.array(list(product([False, True], repeat=3)))  # (sets, 3) which ones may be non-zero
_BOTH = _SETS[:, :, None] & _SETS[:, None, :]


class SegmentRun(NamedTuple):
    """One call of the runner.

    Attributes:
        first: the first segment that ran, counted from 0.
        until: the last one.
        num_rows: rows in the batch.
        num_tokens: real tokens.
        longest: tokens that each row was padded to.
        run_s: time in all segments.
        judge_s: time in judging the rows and letting them leave.
    """

    first: int
    until: int
    num_rows: int
    num_tokens: int
    longest: int
    run_s: float
    judge_s: float


class CostRecorder:
    """Records runs, for the cost model and the metrics.

    Attributes:
        costs: the model, which learns from the runs.
        hung_from_s: by `perf_counter`, when a run whose end is awaited has taken so long that the
            device must be taken for lost; infinite while none is.
    """

    def __init__(self, costs: CostModel, observe: Callable[[BatchStats], None]) -> None:
        self.costs, self._observe = costs, observe
        self._runs: list[SegmentRun] = []
        self.hung_from_s = math.inf

    def awaits(self, first: int, until: int, num_rows: int, num_tokens: int) -> None:
        """Note that a run's end is awaited from now on, until `flush`."""
        run_s = sum(self.costs.segment_s(i, num_rows, num_tokens) for i in range(first, until + 1))
        self.hung_from_s = perf_counter() + max(LEAST_HANG_S, HANG * run_s)

    def record(self, run: SegmentRun) -> None:
        """Remember a run; takes next to no time."""
        self._runs.append(run)

    def flush(self) -> None:
        """Pass on what has been recorded; each run's time is divided among its segments."""
        self.hung_from_s = math.inf
        runs, self._runs = self._runs, []
        for first, until, num_rows, num_tokens, longest, run_s, judge_s in runs:
            self.costs.observe(first, until, num_rows, longest, run_s + judge_s)
            shares = self.costs.shares(first, until, num_rows, longest)
            padded_tokens = num_rows * longest
            for index, share in enumerate(shares, first):
                judged_s = judge_s if index == until else 0.0
                times_s = run_s * share, judged_s
                self._observe(BatchStats(index, num_rows, num_tokens, padded_tokens, *times_s))
