"""Bounds the bytes that a process holds for its clients: bodies, and answers not taken yet."""

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Literal

from serve.errors import AnswersWait, Overloaded, OwnAnswersWait, RateLimited
from serve.runtime.process_memory import give_back_memory

# The beginning of each body and answer is not counted: a server that holds as many large ones as
# it may still takes single texts and answers them.
FREE_BYTES: Final = 16 * 1024
RETRY_AFTER_S: Final = 2
# A client that has taken nothing for so long may be given up for others.
STALLED_S: Final = 5.0
# After so many bytes at once, memory goes back to the system when none are held any more. The C
# library would keep hundreds of MB. It takes about 10 ms.
_TRIM_BYTES: Final = 16 * 1024 * 1024

What = Literal["bodies", "answers"]
# The errors where one client holds too much, and where all clients together do.
_ERRORS: Final[dict[What, tuple[type[Overloaded], type[Overloaded]]]] = {
    "bodies": (RateLimited, Overloaded),
    "answers": (OwnAnswersWait, AnswersWait),
}


@dataclass(slots=True, eq=False)
class Held:
    """One body or answer.

    Attributes:
        client: the identity of `Client`; empty if it counts for no client.
        give_up: is called if it has to make room for others; None to keep it.
        num_bytes: bytes that are counted of it.
        moved_s: when its client took something of it, in monotonic time.
    """

    client: str
    give_up: Callable[[], object] | None = None
    num_bytes: int = 0
    moved_s: float = 0.0


class HeldBytes:
    """Counts the bytes of bodies or of answers, and bounds them. For one event loop.

    A client may hold half of the bound, all clients together the bound; a single body or answer
    may be larger. Where the bound is reached, the answer makes room whose client has taken nothing
    for longest, if that is `STALLED_S` at least and the answer may be given up.

    Attributes:
        num_bytes: bytes that are held now.
        num_given_up: answers that have made room for others.
    """

    def __init__(self, max_bytes: int, what: What) -> None:
        self.num_bytes = self.num_given_up = 0
        self._max_bytes, self._what = max_bytes, what
        self._own_error, self._error = _ERRORS[what]
        self._of_clients: Counter[str] = Counter()
        self._may_go: OrderedDict[Held, None] = OrderedDict()  # the longest wait first
        self._most = 0  # since memory was given back

    def check(self, client: str) -> None:
        """Refuse a client that holds its half already.

        Raises:
            RateLimited: the client does.
        """
        if self._of_clients and self._of_clients[client] >= self._max_bytes // 2:
            raise self._too_many(client)

    def hold(
        self, client: str, num_bytes: int, give_up: Callable[[], object] | None = None
    ) -> Held:
        """Count a body or an answer of this size until `release`.

        Raises:
            RateLimited: the client holds too much.
            Overloaded: all clients together do.
        """
        held = Held(client, give_up)
        self.grow(held, num_bytes)
        return held

    @contextmanager
    def holding(self, client: str, num_bytes: int) -> Iterator[None]:
        """Count a body or an answer until the block is left, as `hold`."""
        held = self.hold(client, num_bytes)
        try:
            yield
        finally:
            self.release(held)

    def grow(self, held: Held, num_bytes: int) -> None:
        """Count a body or an answer as this large if it is counted as less, as `hold`."""
        grown = min(num_bytes - FREE_BYTES, self._max_bytes) - held.num_bytes
        if grown <= 0:
            return
        of_client = self._of_clients[held.client] if held.client else 0
        if of_client > held.num_bytes and of_client + grown > self._max_bytes // 2:
            raise self._too_many(held.client)
        while self.num_bytes + grown > self._max_bytes:
            self._make_room()
        self._count(held, grown)
        self._most = max(self._most, self.num_bytes)
        self.moved(held)

    def moved(self, held: Held) -> None:
        """Note that a client has taken something of its answer."""
        if held.give_up and held.num_bytes:
            held.moved_s = time.monotonic()
            self._may_go[held] = None
            self._may_go.move_to_end(held)

    def release(self, held: Held) -> None:
        """Count a body or an answer out; it may have been released before."""
        self._may_go.pop(held, None)
        self._count(held, -held.num_bytes)
        if not self.num_bytes and self._most >= _TRIM_BYTES:
            self._most = 0
            give_back_memory()

    def _count(self, held: Held, num_bytes: int) -> None:
        held.num_bytes += num_bytes
        self.num_bytes += num_bytes
        if held.client and num_bytes:
            self._of_clients[held.client] += num_bytes
            if not self._of_clients[held.client]:
                del self._of_clients[held.client]

    def _make_room(self) -> None:
        stalled = next(iter(self._may_go), None)
        if stalled is None or time.monotonic() < stalled.moved_s + STALLED_S:
            raise self._error(
                f"the server holds too many large {self._what}; try again", RETRY_AFTER_S
            )
        self.release(stalled)
        self.num_given_up += 1
        if stalled.give_up:
            stalled.give_up()

    def _too_many(self, client: str) -> Overloaded:
        return self._own_error(
            f"the server holds {self._of_clients[client]} bytes of your other {self._what}, and a "
            "client has half of the room; take your answers before you ask for more",
            RETRY_AFTER_S,
        )
