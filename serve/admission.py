"""How much work the engine takes on, and when to come back if it is full."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from serve.errors import InvalidRequest, Overloaded
from serve.row import Row


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Bounds on what is admitted and not yet answered.

    Attributes:
        max_rows: rows, waiting or in flight.
        max_tokens: their tokens.
    """

    max_rows: int = 2048
    max_tokens: int = 131_072


@dataclass(slots=True)
class Admission:
    """Counts admitted rows and tokens, and the pace at which tokens are answered.

    Attributes:
        limits: when to refuse.
        rows: admitted and not yet answered.
        tokens: theirs.
    """

    limits: QueueLimits = QueueLimits()
    rows: int = 0
    tokens: int = 0
    _seconds_per_token: float = 0.0
    _unattributed_s: float = 0.0

    def admit(self, rows: Sequence[Row]) -> None:
        """Count the rows in, all or none.

        Raises:
            InvalidRequest: they would not fit into an empty queue.
            Overloaded: they do not fit now; says when it is worth trying again.
        """
        tokens = sum(row.num_tokens for row in rows)
        self.check_room(len(rows), tokens)
        self.rows += len(rows)
        self.tokens += tokens

    def check_room(self, num_rows: int, num_tokens: int = 0) -> None:
        """Raise what `admit` would raise for so many rows and tokens."""
        rows, tokens = self.limits.max_rows, self.limits.max_tokens
        if num_rows > rows or num_tokens > tokens:
            raise InvalidRequest(
                f"inputs: {num_rows} texts ({num_tokens} tokens) are more than the queue takes at "
                f"all, {rows} ({tokens}); send fewer at once"
            )
        if self.rows + num_rows > rows or self.tokens + num_tokens > tokens:
            raise Overloaded(
                f"the queue is full: {self.rows} rows ({self.tokens} tokens) are waiting, "
                f"at most {rows} ({tokens}) may",
                retry_after_s=max(1, math.ceil(self.backlog_s)),
            )

    def release(self, rows: Sequence[Row]) -> None:
        """Count rows out that have got their answer or error."""
        self.rows -= len(rows)
        self.tokens -= sum(row.num_tokens for row in rows)

    @property
    def backlog_s(self) -> float:
        """Estimated seconds until what is admitted now is answered; 0 before any measurement."""
        return self.tokens * self._seconds_per_token

    def measure(self, busy_s: float, answered: Sequence[Row]) -> None:
        """Learn the pace from time spent working and the rows answered meanwhile."""
        self._unattributed_s += busy_s
        tokens = sum(row.num_tokens for row in answered)
        if tokens:
            pace = self._unattributed_s / tokens
            known = self._seconds_per_token or pace
            self._seconds_per_token = 0.9 * known + 0.1 * pace
            self._unattributed_s = 0.0
