"""How much work the engine takes on, of all clients and of each."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from serve.engine.backlog import Backlog
from serve.engine.cost_model import CostModel
from serve.engine.row import Outcome, Priority, Row
from serve.engine.scheduler import BatchLimits
from serve.errors import InvalidRequest, Overloaded

# A client may hold so many times what is free (a dynamic threshold, Choudhury and Hahne 1998). A
# client that is alone then fills three quarters, and ten busy ones leave room for an eleventh.
TIMES_FREE = 3

# A client's only request may take more, so that large ones are taken while others have a few rows
# in the queue. One that comes to an empty queue may take it all.
TIMES_FREE_AT_ONCE = 15


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Bounds on what is admitted and not yet answered.

    Attributes:
        max_rows: rows, waiting or in flight.
        max_tokens: their tokens.
    """

    max_rows: int = 2048
    max_tokens: int = 131_072


class _Held(NamedTuple):
    """What a client has admitted and not yet answered."""

    rows: int = 0
    tokens: int = 0


class Admission:
    """Counts admitted rows and tokens, of all clients and of each.

    Attributes:
        backlog: what is admitted and not yet answered.
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
        self.backlog = Backlog(costs, batch_limits)
        self._tokens_of = dict.fromkeys(Priority, 0)
        self._limits = limits
        self._clients: dict[str, _Held] = {}

    def wait_s(self, client: str, priority: Priority) -> float:
        """Return the estimated seconds until a client's next row starts.

        Rows of a worse priority are not waited for. Clients take turns, so a client with little
        in the queue waits for as much of the others' only.
        """
        if not self.backlog.rows:
            return 0.0
        ahead = sum([tokens for own, tokens in self._tokens_of.items() if own <= priority])
        share = ahead / self.backlog.tokens
        if client:
            held = self._clients.get(client, _Held())
            share *= min(1.0, held.tokens * len(self._clients) / self.backlog.tokens)
        return share * self.backlog.seconds

    def admit(self, rows: Sequence[Row], now_s: float) -> None:
        """Count the rows of one request in, all or none.

        Raises:
            InvalidRequest: they would not fit into an empty queue.
            Overloaded: they do not fit now, or not into the client's share; says when it is
                worth trying again.
        """
        if not rows:
            return
        tokens, client = sum([row.num_tokens for row in rows]), rows[0].client
        self.check_room(len(rows), tokens, client)
        held = self._clients.get(client, _Held())
        self._clients[client] = _Held(held.rows + len(rows), held.tokens + tokens)
        self._tokens_of[rows[0].priority] += tokens
        self.backlog.add(rows, now_s)

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
        waiting = self.backlog
        free = rows - waiting.rows - num_rows, tokens - waiting.tokens - num_tokens - coming
        if min(free) < 0:
            self._refuse(
                f"the queue is full: {waiting.rows} rows ({waiting.tokens + coming} tokens, those "
                f"of texts being tokenized included) are waiting, at most {rows} ({tokens}) may"
            )
        if client and waiting.rows:
            held = self._clients.get(client, _Held())
            times = TIMES_FREE if held.rows else TIMES_FREE_AT_ONCE
            if held.rows + num_rows > times * free[0] or held.tokens + num_tokens > times * free[1]:
                self._refuse(
                    f"your share of the queue is full: {held.rows} of your rows ({held.tokens} "
                    f"tokens) are waiting, and a client may hold at most {times} times what is "
                    "left free in the queue"
                )

    def _refuse(self, message: str) -> None:
        raise Overloaded(message, retry_after_s=max(1, math.ceil(self.backlog.seconds)))

    def release(self, outcomes: Sequence[Outcome], now_s: float) -> None:
        """Count out rows that have got their answer or error."""
        for row, _ in outcomes:
            self._tokens_of[row.priority] -= row.num_tokens
            held = self._clients[row.client]
            if held.rows == 1:
                del self._clients[row.client]
            else:
                self._clients[row.client] = _Held(held.rows - 1, held.tokens - row.num_tokens)
        self.backlog.remove(outcomes, now_s)
