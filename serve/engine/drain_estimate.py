"""How long the admitted rows will take, for Retry-After and the metrics."""

import math
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from serve.engine.cost_model import CostModel, SegmentCost
from serve.engine.row import Answer, Outcome, Row
from serve.engine.scheduler import BatchLimits

# How deep rows go is taken from the answers to so many tokens.
TOKENS_REMEMBERED = 4096

# The pace is that of the last seconds. At first the costs count as right, for so many seconds.
PACE_MEMORY_S = 5.0
TRUSTED_S = 2.0


class DrainEstimate:
    """The rows that are admitted and not answered, and how fast such rows went lately.

    A row is expected to go as deep as recent rows went, and at least to the first exit that its
    rule looks at. What the costs of segments do not say is in the pace: the time that answers took
    while batches were full, over what the costs say of them. It is above 1 where rows are padded,
    where others use the cores too, or where the host takes its time between two segments.
    """

    def __init__(self, costs: CostModel, batch_limits: BatchLimits) -> None:
        """Start empty.

        Args:
            costs: what segments cost.
            batch_limits: how many rows share a segment run.
        """
        self._costs, self._batch_limits = costs, batch_limits
        self._depths = _RecentDepths(len(costs))
        # Rows, tokens, pairs of tokens of one row; by the first exit that the rows' rules look at.
        self._waiting = [[0, 0, 0] for _ in range(len(costs))]
        self._num_rows = self._num_tokens = 0
        self._since_s = math.nan  # of the last answers
        self._took_s = self._expected_s = TRUSTED_S

    def add(self, rows: Sequence[Row], now_s: float) -> None:
        """Count rows in."""
        if not self._num_rows:
            self._since_s = now_s
        self._count(rows, 1)

    def remove(self, outcomes: Sequence[Outcome], now_s: float) -> None:
        """Count rows out, and learn from their answers."""
        answers = [(row, o.exit_index + 1) for row, o in outcomes if isinstance(o, Answer)]
        room = self.room()
        if answers and self._num_rows >= room:
            self._learn_pace(sum(self._run_s(*answer, room) for answer in answers), now_s)
        if answers:
            self._since_s = now_s
        for row, depth in answers:
            self._depths.add(depth, row.num_tokens)
        self._count([row for row, _ in outcomes], -1)

    @property
    def seconds(self) -> float:
        """Estimated time of all rows; 0 before any measurement. Those in flight count as new."""
        if not self._num_rows:
            return 0.0
        run_rows = min(self._num_rows, self.room())
        total_s = 0.0
        sure = np.array(self._waiting)[::-1].cumsum(axis=0)[::-1]  # to run in each segment
        reach = np.array(self._depths.reaching())[:, None]
        expected = sure + reach * (sure[0] - sure)
        for cost, (rows, tokens, pairs) in zip(
            self._costs.coefficients(), expected.tolist(), strict=True
        ):
            total_s += cost.fixed_s * rows / run_rows
            total_s += cost.per_token_s * tokens + cost.per_token_pair_s * pairs
        return total_s * self._took_s / self._expected_s

    def _count(self, rows: Sequence[Row], sign: int) -> None:
        last = len(self._waiting) - 1
        for row in rows:
            num_tokens = row.num_tokens
            waiting = self._waiting[min(row.rule.first_heard, last)]
            waiting[0] += sign
            waiting[1] += sign * num_tokens
            waiting[2] += sign * num_tokens**2
            self._num_tokens += sign * num_tokens
        self._num_rows += sign * len(rows)

    def room(self) -> int:
        """Return how many rows of the mean length share a run."""
        mean = max(1, math.ceil(self._num_tokens / max(1, self._num_rows)))
        limits = self._batch_limits
        return max(1, min(limits.max_rows, limits.max_tokens // mean))

    def _run_s(self, row: Row, depth: int, room: int) -> float:
        """Return what the costs say of a row that ran so deep in full batches."""
        left = self._costs.remaining(depth) if depth < len(self._costs) else SegmentCost()
        fixed_s, token_s, pair_s = (
            a - b for a, b in zip(self._costs.remaining(0), left, strict=True)
        )
        return fixed_s / room + (token_s + pair_s * row.num_tokens) * row.num_tokens

    def _learn_pace(self, expected_s: float, now_s: float) -> None:
        took_s = now_s - self._since_s
        fade = math.exp(-took_s / PACE_MEMORY_S)
        self._took_s = fade * self._took_s + took_s
        self._expected_s = fade * self._expected_s + expected_s


class _RecentDepths:
    """How deep recent answers went; old answers fade."""

    def __init__(self, num_segments: int) -> None:
        self._counts = [0.0] * num_segments
        self._weight = 1.0

    def add(self, depth: int, num_tokens: int) -> None:
        """Count an answer after so many segments, by its tokens: long rows are most of the work."""
        # A new answer weighs more than the one before it, so that old answers fade.
        self._weight *= 1 + num_tokens / TOKENS_REMEMBERED
        self._counts[depth - 1] += self._weight * num_tokens
        if self._weight > 1e100:
            self._counts = [count / self._weight for count in self._counts]
            self._weight = 1.0

    def reaching(self) -> list[float]:
        """Return the share of rows that each segment sees; 1 before any answer."""
        total = sum(self._counts) or 1.0
        left = accumulate(self._counts, initial=0.0)
        return [1 - gone / total for gone in left][: len(self._counts)]
