"""How much work the engine takes on, of all clients and of each."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from serve.engine.cost_model import CostModel
from serve.engine.row import Answer, Outcome, Priority, Row
from serve.engine.scheduler import BatchLimits
from serve.errors import InvalidRequest, Overloaded

# A client may hold so many times what is free (a dynamic threshold, Choudhury and Hahne 1998). A
# client that is alone then fills three quarters, and ten busy ones leave room for an eleventh.
TIMES_FREE = 3

# A client's only request may take more, so that large ones are taken while others have a few rows
# in the queue. One that comes to an empty queue may take it all.
TIMES_FREE_AT_ONCE = 15

# The pace of answers is that of the last seconds, and of the last tokens, whichever is less.
MEMORY_S = 1.0
MEMORY_TOKENS = 8192


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Bounds on what is admitted and not yet answered.

    Attributes:
        max_rows: rows, waiting or in flight.
        max_tokens: their tokens.
    """

    max_rows: int = 2048
    max_tokens: int = 131_072


class Load(NamedTuple):
    """What is admitted and not yet answered.

    Attributes:
        rows: how many.
        tokens: theirs.
        pairs: of tokens of one row, which attention compares.
    """

    rows: int = 0
    tokens: int = 0
    pairs: int = 0

    @classmethod
    def of(cls, rows: Sequence[Row]) -> "Load":
        """Return what these rows are together."""
        lengths = [row.num_tokens for row in rows]
        return cls(len(rows), sum(lengths), sum([num * num for num in lengths]))

    def plus(self, other: "Load", times: int = 1) -> "Load":
        """Return both together; with -1 `times`, this one without the other."""
        return Load(
            self.rows + times * other.rows,
            self.tokens + times * other.tokens,
            self.pairs + times * other.pairs,
        )


class Admission:
    """Counts admitted rows, of all clients and of each, and the pace at which they are answered.

    The pace is the time in which rows waited, over what the costs say of the answered rows in
    full batches at full depth. So it holds all that the costs do not say: how deep rows go,
    padding, other users of the cores, the host's work between two segments.

    Attributes:
        held: what is admitted and not yet answered.
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
        self.held = Load()
        self._limits, self._costs, self._batch_limits = limits, costs, batch_limits
        self._tokens_of = dict.fromkeys(Priority, 0)
        self._clients: dict[str, Load] = {}
        self._since_s = math.nan  # of the last answers, or since rows wait
        self._took_s = self._full_s = 0.0

    @property
    def seconds(self) -> float:
        """Estimated time until all rows are answered."""
        return self._pace * self._at_full_depth(self.held)

    def wait_s(self, client: str, priority: Priority) -> float:
        """Return the estimated seconds until a client's next row starts.

        Rows of a worse priority are not waited for. Clients take turns, so a client with little
        in the queue waits for as much work of each of the others only, however long their texts.
        """
        if not self.held.rows:
            return 0.0
        ahead = sum([tokens for own, tokens in self._tokens_of.items() if own <= priority])
        of_all_s = self.seconds
        if client:
            own = self._clients.get(client, Load())
            # While long rows of others run, few are answered, and the pace says more than is true.
            own_s = min(1.0, self._pace) * self._at_full_depth(own)
            of_all_s = min(of_all_s, own_s * len(self._clients))
        return ahead / self.held.tokens * of_all_s

    def admit(self, rows: Sequence[Row], now_s: float) -> None:
        """Count the rows of one request in, all or none.

        Raises:
            InvalidRequest: they would not fit into an empty queue.
            Overloaded: they do not fit now, or not into the client's share; says when it is
                worth trying again.
        """
        if not rows:
            return
        own, client = Load.of(rows), rows[0].client
        self.check_room(own.rows, own.tokens, client)
        if not self.held.rows:
            self._since_s = now_s
        self._clients[client] = self._clients.get(client, Load()).plus(own)
        self._tokens_of[rows[0].priority] += own.tokens
        self.held = self.held.plus(own)

    def check_room(
        self, num_rows: int, num_tokens: int = 0, client: str = "", coming: int = 0
    ) -> None:
        """Raise what `admit` would raise for so many rows and tokens of a client.

        Tokens that are `coming` with other requests take their room already.
        """
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
        waiting = self.held
        free = rows - waiting.rows - num_rows, tokens - waiting.tokens - num_tokens - coming
        if min(free) < 0:
            self._refuse(
                f"the queue is full: {waiting.rows} rows ({waiting.tokens + coming} tokens, those "
                f"of texts being tokenized included) are waiting, at most {rows} ({tokens}) may"
            )
        if client and waiting.rows:
            held = self._clients.get(client, Load())
            times = TIMES_FREE if held.rows else TIMES_FREE_AT_ONCE
            if held.rows + num_rows > times * free[0] or held.tokens + num_tokens > times * free[1]:
                self._refuse(
                    f"your share of the queue is full: {held.rows} of your rows ({held.tokens} "
                    f"tokens) are waiting, and a client may hold at most {times} times what is "
                    "left free in the queue"
                )

    def _refuse(self, message: str) -> None:
        raise Overloaded(message, retry_after_s=max(1, math.ceil(self.seconds)))

    def release(self, outcomes: Sequence[Outcome], now_s: float) -> None:
        """Count out rows that have got their answer or error, and learn the pace of answers."""
        if answered := [row for row, result in outcomes if isinstance(result, Answer)]:
            own, took_s, self._since_s = Load.of(answered), now_s - self._since_s, now_s
            fade = math.exp(-took_s / MEMORY_S - own.tokens / MEMORY_TOKENS)
            self._took_s = fade * self._took_s + took_s
            self._full_s = fade * self._full_s + self._at_full_depth(own)
        for row, _ in outcomes:
            self._tokens_of[row.priority] -= row.num_tokens
            held, num = self._clients[row.client], row.num_tokens
            if held.rows == 1:
                del self._clients[row.client]
            else:
                left = Load(held.rows - 1, held.tokens - num, held.pairs - num * num)
                self._clients[row.client] = left
        self.held = self.held.plus(Load.of([row for row, _ in outcomes]), -1)

    @property
    def _pace(self) -> float:
        return self._took_s / self._full_s if self._full_s else 1.0

    def _at_full_depth(self, held: Load) -> float:
        """Return the time of so many rows in batches as large as the queue makes them."""
        if not held.rows:
            return 0.0
        mean, limits = math.ceil(self.held.tokens / self.held.rows), self._batch_limits
        share_run = max(1, min(self.held.rows, limits.max_rows, limits.max_tokens // mean))
        fixed_s, token_s, pair_s = self._costs.remaining(0)
        return fixed_s * held.rows / share_run + token_s * held.tokens + pair_s * held.pairs
