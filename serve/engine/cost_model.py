"""What a batch costs: segment time as a function of rows and tokens, learned from real runs.

Each segment has a formula of its own, t = fixed + per_token * rows * tokens + per_pair * rows *
tokens^2. It is fitted to relative errors, so that a batch of one row counts as much as a full one.
Old runs fade. The shape that the warm-up has found stays, scaled to the present speed, because
traffic of one length says nothing about other lengths.
"""

import math
from collections.abc import Callable, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

REFIT_EVERY = 128
MEMORY = 512  # observations of a segment that count; older ones fade
CLIP = 3.0  # an observation counts as at most so many times its estimate, and at least 1 / so many
ANCHOR = 16.0  # the warm-up's shape weighs as much as so many observations


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


class CostModel:
    """Segment times. Any thread reads them; the engine's thread reports runs.

    Attributes:
        known: whether every segment has been measured.
    """

    def __init__(self, num_segments: int) -> None:
        """Start without measurements.

        Args:
            num_segments: how many segments there are.
        """
        self.known = False
        self._fits = [_Fit() for _ in range(num_segments)]
        self._costs: list[SegmentCost] = []
        self._remaining: list[SegmentCost] = []
        self._join_per_token_s = 0.0
        self._at_warm_up: CostModel | None = None
        self._publish([SegmentCost()] * num_segments)

    @classmethod
    def of(cls, costs: Sequence[SegmentCost], join_per_token_s: float = 0.0) -> "CostModel":
        """Return a model with given figures."""
        model = cls(len(costs))
        model._publish(list(costs))
        model._join_per_token_s = join_per_token_s
        return model

    def __len__(self) -> int:
        return len(self._costs)

    @property
    def at_warm_up(self) -> "CostModel":
        """The costs when the warm-up ended; without a warm-up, the present ones."""
        return self._at_warm_up or self

    def segment_s(self, index: int, num_rows: int, num_tokens: int) -> float:
        """Return the time of one segment; 0 before any measurement."""
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

    def shares(self, begin: int, end: int, num_rows: int, num_tokens: int) -> list[float]:
        """Return what part each of these segments has in the time of all of them."""
        times_s = [self.segment_s(i, num_rows, num_tokens) for i in range(begin, end)]
        total_s = sum(times_s)
        if not total_s:
            return [1 / (end - begin)] * (end - begin)
        return [time_s / total_s for time_s in times_s]

    def join_s(self, num_rows: int, num_tokens: int) -> float:
        """Return the time of copying so many rows' hidden states together."""
        return self._join_per_token_s * num_rows * num_tokens

    def coefficients(self) -> list[SegmentCost]:
        """Return the present figures, one per segment."""
        return list(self._costs)

    def observe(self, index: int, num_rows: int, num_tokens: int, seconds: float) -> None:
        """Learn from a run. One caller at a time; most calls only take a note."""
        fit = self._fits[index]
        fit.recent.append((num_rows, num_tokens, seconds))
        # Segments refit at different times, so that no request waits for all of them.
        if len(fit.recent) >= REFIT_EVERY + index:
            self.refit([index])

    def observe_join(self, num_rows: int, num_tokens: int, seconds: float) -> None:
        """Learn from hidden states that were copied together."""
        pace, known = seconds / (num_rows * num_tokens), self._join_per_token_s
        self._join_per_token_s = 0.9 * known + 0.1 * min(pace, CLIP * known) if known else pace

    def refit(self, indices: Sequence[int] | None = None) -> None:
        """Bring these segments' figures, or all, up to what has been observed."""
        costs = list(self._costs)
        for index in range(len(costs)) if indices is None else indices:
            costs[index] = self._fits[index].solve(costs[index])
        self._publish(costs)

    def anchor(self) -> None:
        """Keep the shape of the costs that have been observed until now."""
        self.refit()
        for fit in self._fits:
            fit.anchor()
        self._at_warm_up = CostModel.of(self._costs)

    def _publish(self, costs: list[SegmentCost]) -> None:
        # Whole lists are exchanged, so that other threads read either the old or the new costs.
        sums = np.cumsum(np.array(costs)[::-1], axis=0)[::-1]
        self._remaining = [SegmentCost(*cost) for cost in sums.tolist()]
        self._costs = costs
        self.known = all(any(cost) for cost in costs)


def last_exit_in_time(
    until: int,
    costs: CostModel,
    size: tuple[int, int, int],
    deadline_s: float,
    clock: Callable[[], float],
) -> int:
    """Return an exit, `until` or an earlier one, that a run reaches within `MAX_RUN_S`.

    The run also ends before a deadline, but one segment runs in any case. For a deadline the larger
    of two estimates counts, today's and the warm-up's: today's may come from texts of another
    length.

    Args:
        until: index of the exit at which the run would end.
        costs: what segments cost.
        size: the batch's depth, its rows, and the tokens of the longest.
        deadline_s: on the clock; infinite for none.
        clock: monotonic seconds.
    """
    if until == size[0]:
        return until
    if deadline_s == math.inf:
        return min(until, costs.reach(*size, MAX_RUN_S) - 1)
    free_s = min(MAX_RUN_S, deadline_s - clock())
    return min(until, costs.reach(*size, free_s) - 1, costs.at_warm_up.reach(*size, free_s) - 1)


class _Fit:
    """One segment's weighted least squares: decayed sums of x x' and x, with x relative to t."""

    def __init__(self) -> None:
        self.recent: list[tuple[int, int, float]] = []  # rows, tokens, seconds: not in the sums yet
        self._square = np.zeros((3, 3))
        self._right = np.zeros(3)
        self._count = 0
        self._anchor_square = np.zeros((3, 3))
        self._anchor_right = np.zeros(3)
        self._anchored = SegmentCost()
        self._speed = 1.0  # present time over the anchor's

    def _add_recent(self, known: SegmentCost) -> None:
        """Add recent runs to the sums, the last at full weight."""
        if not self.recent:
            return
        rows, tokens, seconds = np.array(self.recent).T
        self.recent = []
        basis = np.stack([np.ones_like(rows), rows * tokens, rows * tokens**2])  # (3, runs)
        if any(known):
            expected = np.array(known) @ basis
            seconds = seconds.clip(expected / CLIP, expected * CLIP)
        if any(self._anchored):
            ratio = float(np.median(seconds / (np.array(self._anchored) @ basis)))
            self._speed += (ratio - self._speed) * min(1.0, 8 * len(seconds) / MEMORY)
        weights = (1 - 1 / MEMORY) ** np.arange(len(seconds) - 1, -1, -1)
        x = basis / np.maximum(seconds, 1e-9)
        fade = (1 - 1 / MEMORY) ** len(seconds)
        self._square = fade * self._square + (weights * x) @ x.T
        self._right = fade * self._right + x @ weights
        self._count += len(seconds)

    def anchor(self) -> None:
        """Keep the present sums as the shape, and start new sums."""
        self._anchored = self.solve(SegmentCost())
        if self._count:
            weight = ANCHOR / self._count
            self._anchor_square, self._anchor_right = self._square * weight, self._right * weight
            self._square, self._right = np.zeros((3, 3)), np.zeros(3)
            self._count, self._speed = 0, 1.0

    def solve(self, known: SegmentCost) -> SegmentCost:
        """Return the non-negative coefficients of least squared relative error."""
        self._add_recent(known)
        # The anchor's times at the present speed: x / (speed * t).
        square = self._square + self._anchor_square / self._speed**2
        if not square.any():
            return known
        right = self._right + self._anchor_right / self._speed
        return SegmentCost(*_non_negative(square, right).tolist())


def _non_negative(square: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    """Minimise x'Ax/2 - b'x over x >= 0, by trying every set of non-zero coefficients."""
    scale = np.sqrt(np.maximum(square.diagonal(), 1e-300))
    # Tokens explain a time before pairs of tokens do: few lengths do not tell them apart.
    a = square / np.outer(scale, scale) + np.diag([1e-6, 1e-6, 0.02])
    b = right / scale
    x = np.linalg.solve(np.where(_BOTH, a, np.eye(3)), np.where(_SETS, b, 0)[..., None])[..., 0]
    # At the minimum of each set x'Ax = b'x, so that the value there is -b'x/2.
    best = np.where((x >= 0).all(axis=1), x @ b, -np.inf).argmax()
    solution: NDArray[np.float64] = x[best] / scale
    return solution


_SETS = np.array(list(product([False, True], repeat=3)))  # (sets, 3) which ones may be non-zero
_BOTH = _SETS[:, :, None] & _SETS[:, None, :]
