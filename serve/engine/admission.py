"""How much work the engine takes on, and when to come back if it is full."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from serve.engine.cost_model import CostModel
from serve.engine.row import Answer, Outcome, Row
from serve.engine.scheduler import BatchLimits
from serve.errors import InvalidRequest, Overloaded

ANSWERS_REMEMBERED = 1000


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Bounds on what is admitted and not yet answered.

    Attributes:
        max_rows: rows, waiting or in flight.
        max_tokens: their tokens.
    """

    max_rows: int = 2048
    max_tokens: int = 131_072


class Admission:
    """Counts admitted rows and tokens, and estimates how long they will take.

    Attributes:
        rows: admitted and not yet answered.
        tokens: theirs.
    """

    def __init__(
        self,
        limits: QueueLimits,
        costs: CostModel,
        batch_limits: BatchLimits = BatchLimits(),
    ) -> None:
        """Start empty.

        Args:
            limits: when to refuse.
            costs: what segments cost.
            batch_limits: how many rows share a segment run.
        """
        self.rows = 0
        self.tokens = 0
        self._limits, self._batch_limits = limits, batch_limits
        self._costs = costs
        self._depths = _RecentDepths(len(costs))

    def admit(self, rows: Sequence[Row]) -> None:
        """Count the rows in, all or none.

        Raises:
            InvalidRequest: they would not fit into an empty queue.
            Overloaded: they do not fit now; says when it is worth trying again.
        """
        tokens = sum([row.num_tokens for row in rows])
        self.check_room(len(rows), tokens)
        self.rows += len(rows)
        self.tokens += tokens

    def check_room(self, num_rows: int, num_tokens: int = 0) -> None:
        """Raise what `admit` would raise for so many rows and tokens."""
        rows, tokens = self._limits.max_rows, self._limits.max_tokens
        if num_rows > rows:
            raise InvalidRequest(
                f"inputs: {num_rows} texts are more than the queue takes at all, {rows}; "
                "send fewer at once"
            )
        if num_tokens > tokens:
            raise InvalidRequest(
                f"inputs: {num_tokens} tokens in {num_rows} texts are more than the queue takes at "
                f"all, {tokens}; send fewer at once"
            )
        if self.rows + num_rows > rows or self.tokens + num_tokens > tokens:
            raise Overloaded(
                f"the queue is full: {self.rows} rows ({self.tokens} tokens) are waiting, "
                f"at most {rows} ({tokens}) may",
                retry_after_s=max(1, math.ceil(self.backlog_s)),
            )

    def release(self, outcomes: Sequence[Outcome]) -> None:
        """Count out rows that have got their answer or error."""
        for row, result in outcomes:
            self.rows -= 1
            self.tokens -= row.num_tokens
            if isinstance(result, Answer):
                self._depths.add(result.exit_index + 1)

    @property
    def backlog_s(self) -> float:
        """Estimated seconds until what is admitted now is answered; 0 before any measurement.

        The estimate takes measured segment times, batches of the rows that are admitted, and how
        deep recent rows went. Rows in flight count as if they had not started.
        """
        if not self.rows:
            return 0.0
        num_tokens = math.ceil(self.tokens / self.rows)
        limits = self._batch_limits
        room = max(1, min(limits.max_rows, limits.max_tokens // num_tokens))
        batches = self.rows / min(self.rows, room)
        return batches * sum(
            reach * self._costs.segment_s(index, min(self.rows, room), num_tokens)
            for index, reach in enumerate(self._depths.reaching())
        )


class _RecentDepths:
    """How deep recent answers went; old answers fade."""

    def __init__(self, num_segments: int) -> None:
        self._counts = [0.0] * num_segments
        self._weight = 1.0

    def add(self, depth: int) -> None:
        """Count an answer after so many segments."""
        # A new answer weighs more than the one before it, so that old answers fade.
        self._weight *= 1 + 1 / ANSWERS_REMEMBERED
        self._counts[depth - 1] += self._weight
        if self._weight > 1e100:
            self._counts = [count / self._weight for count in self._counts]
            self._weight = 1.0

    def reaching(self) -> list[float]:
        """Return the share of rows that each segment sees; 1 before any answer."""
        total = sum(self._counts) or 1.0
        left = accumulate(self._counts, initial=0.0)
        return [1 - gone / total for gone in left][: len(self._counts)]
