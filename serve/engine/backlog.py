"""How long the admitted rows will take."""

import math
from collections.abc import Sequence

from serve.engine.cost_model import CostModel
from serve.engine.row import Answer, Outcome, Row
from serve.engine.scheduler import BatchLimits

# Answers of the last seconds count, and of the last tokens, whichever is less.
MEMORY_S = 1.0
MEMORY_TOKENS = 8192


class Backlog:
    """The rows that are admitted and not answered, and the pace at which such rows were answered.

    The pace is the time in which rows waited, over what the costs say of the answered rows in
    full batches at full depth. So it holds all that the costs do not say: how deep rows go,
    padding, other users of the cores, the host's work between two segments.

    Attributes:
        rows: how many.
        tokens: theirs.
    """

    def __init__(self, costs: CostModel, batch_limits: BatchLimits) -> None:
        """Start empty.

        Args:
            costs: what segments cost.
            batch_limits: how many rows share a segment run.
        """
        self.rows = self.tokens = 0
        self._pairs = 0  # of tokens of one row
        self._costs, self._batch_limits = costs, batch_limits
        self._since_s = math.nan  # of the last answers, or since rows wait
        self._took_s = self._full_s = 0.0

    def add(self, rows: Sequence[Row], now_s: float) -> None:
        """Count rows in."""
        if not self.rows:
            self._since_s = now_s
        self._count(rows, 1)

    def remove(self, outcomes: Sequence[Outcome], now_s: float) -> None:
        """Count rows out, and learn from their answers."""
        answered = [row for row, result in outcomes if isinstance(result, Answer)]
        if answered:
            tokens, pairs = _tokens(answered), _pairs(answered)
            took_s, self._since_s = now_s - self._since_s, now_s
            fade = math.exp(-took_s / MEMORY_S - tokens / MEMORY_TOKENS)
            self._took_s = fade * self._took_s + took_s
            self._full_s = fade * self._full_s + self._at_full_depth(len(answered), tokens, pairs)
        self._count([row for row, _ in outcomes], -1)

    @property
    def seconds(self) -> float:
        """Estimated time until all rows are answered; 0 before any measurement."""
        if not self.rows:
            return 0.0
        pace = self._took_s / self._full_s if self._full_s else 1.0
        return pace * self._at_full_depth(self.rows, self.tokens, self._pairs)

    def _at_full_depth(self, num_rows: int, tokens: int, pairs: int) -> float:
        """Return the time of so many rows in batches as large as the queue makes them."""
        mean, limits = math.ceil(self.tokens / self.rows), self._batch_limits
        share_run = max(1, min(self.rows, limits.max_rows, limits.max_tokens // mean))
        fixed_s, token_s, pair_s = self._costs.remaining(0)
        return fixed_s * num_rows / share_run + token_s * tokens + pair_s * pairs

    def _count(self, rows: Sequence[Row], sign: int) -> None:
        self.rows += sign * len(rows)
        self.tokens += sign * _tokens(rows)
        self._pairs += sign * _pairs(rows)


def _tokens(rows: Sequence[Row]) -> int:
    return sum([row.num_tokens for row in rows])


def _pairs(rows: Sequence[Row]) -> int:
    return sum([row.num_tokens**2 for row in rows])
