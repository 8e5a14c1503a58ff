"""Bounds the answers that clients have not taken yet."""

import asyncio
from collections import Counter, OrderedDict
from dataclasses import dataclass
from typing import Any, Final

from starlette.types import Message, Send

from serve.api.limits import FREE_BYTES, RETRY_AFTER_S, BodyBudget
from serve.config import WebLimits
from serve.errors import AnswersWait, OwnAnswersWait
from serve.metrics.connections import Closed, ConnectionState

# An answer is sent in pieces of this size; each goes once the client has taken the one before.
PIECE_BYTES: Final = 64 * 1024
# An answer may make room for others when its client has taken nothing of it for so long.
STALLED_S: Final = 5.0


@dataclass(slots=True, eq=False)
class UnsentAnswer:
    """An answer that its client has not taken whole.

    Attributes:
        client: the identity of `Client`.
        num_bytes: counted for it until the end.
        task: sends it.
        moved_s: when the client took something of it, on the event loop's clock.
    """

    client: str
    num_bytes: int
    task: asyncio.Task[Any] | None
    moved_s: float


class UnsentAnswers:
    """Counts the bytes of answers until their clients have taken them. For one event loop.

    Answers up to `FREE_BYTES` are not counted. A client may have half of all bytes, and more with
    a single answer. Where that of all clients is too much, answers that have waited for their
    clients longest, and for `STALLED_S` at least, are given up to make room.
    """

    def __init__(
        self,
        max_bytes: int = WebLimits().max_buffered_bytes,
        state: ConnectionState | None = None,
    ) -> None:
        """Take the most bytes that are held at once, and what counts those given up."""
        self._budget, self._max_bytes = BodyBudget(max_bytes), max_bytes
        self._share = max_bytes // 2
        self._state = state or ConnectionState()
        self._of_clients: Counter[str] = Counter()
        self._waiting: OrderedDict[UnsentAnswer, None] = OrderedDict()  # the longest wait first

    def check(self, client: str) -> None:
        """Refuse a request before it is worked on.

        Raises:
            AnswersWait: the client has too much to take already.
        """
        if self._of_clients and self._of_clients[client] >= self._share:
            raise self._too_many(client)

    def hold(
        self, client: str, num_bytes: int, task: asyncio.Task[Any] | None = None
    ) -> UnsentAnswer | None:
        """Count an answer in that is about to be sent; return None where it is not counted.

        Args:
            client: the identity of `Client`.
            num_bytes: of the answer.
            task: is cancelled if the answer has to make room; None to keep it.

        Raises:
            AnswersWait: the client, or all clients, have too much to take already.
        """
        if num_bytes <= FREE_BYTES:
            return None
        before = self._of_clients[client]
        if before and before + num_bytes > self._share:
            raise self._too_many(client)
        num_bytes = min(num_bytes, self._max_bytes)  # the only answer may be larger
        now_s = asyncio.get_running_loop().time()
        while not self._budget.fits(num_bytes):
            self._make_room(now_s)
        self._budget.take(num_bytes)
        held = UnsentAnswer(client, num_bytes, task, now_s)
        self._of_clients[client] += num_bytes
        self._waiting[held] = None
        self._state.unsent_bytes += num_bytes
        return held

    def release(self, held: UnsentAnswer | None) -> None:
        """Count an answer out that has been taken or given up; it may have been before."""
        if held is None or held not in self._waiting:
            return
        del self._waiting[held]
        self._of_clients[held.client] -= held.num_bytes
        if not self._of_clients[held.client]:
            del self._of_clients[held.client]
        self._state.unsent_bytes -= held.num_bytes
        self._budget.release(held.num_bytes)

    async def send(self, held: UnsentAnswer, message: Message, send: Send) -> None:
        """Send a part of the body, in pieces that the client takes one after the other."""
        body, more_body = message.get("body", b""), message.get("more_body", False)
        for begin in range(0, max(1, len(body)), PIECE_BYTES):
            end = begin + PIECE_BYTES
            more = more_body or end < len(body)
            await send({"type": message["type"], "body": body[begin:end], "more_body": more})
            held.moved_s = asyncio.get_running_loop().time()
            if held in self._waiting:
                self._waiting.move_to_end(held)

    def _make_room(self, now_s: float) -> None:
        longest = next(iter(self._waiting), None)
        if longest is None or longest.task is None or now_s < longest.moved_s + STALLED_S:
            raise AnswersWait(
                "the server holds as many answers as it may that clients do not take; this one is "
                "dropped",
                RETRY_AFTER_S,
            )
        self._state.closed[Closed.UNREAD] += 1
        longest.task.cancel()
        self.release(longest)

    def _too_many(self, client: str) -> OwnAnswersWait:
        return OwnAnswersWait(
            f"{self._of_clients[client]} bytes of answers wait for this client; take them before "
            "you ask for more",
            RETRY_AFTER_S,
        )
