"""Bounds the body of one request, and the bodies that are held at once."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress

from starlette.types import Message, Receive

from serve.errors import BodyTooLarge, Cancelled, Overloaded, RateLimited
from serve.runtime.process_memory import give_back_memory

# Clients such as urllib read the answer only after they have sent the whole body. Closing the
# connection earlier resets it, and the answer is lost; so the rest is read and dropped, as far as
# these bounds.
MAX_DISCARDED_BYTES = 16 * 1024 * 1024
DISCARD_S = 5.0

# The beginning of each body is not counted among those held at once: a server that holds as many
# large bodies as it may still takes single texts.
FREE_BYTES = 16 * 1024
RETRY_AFTER_S = 2

# After so many bytes at once, memory goes back to the system when none are held any more. The C
# library would keep hundreds of MB. It takes about 10 ms.
TRIM_BYTES = 16 * 1024 * 1024


class BodyBudget:
    """Counts the bytes of all bodies that a process holds. For one event loop.

    A client that is named has half of it, or one body that is larger.
    """

    def __init__(self, max_bytes: int) -> None:
        """Take the most bytes that are held at once."""
        self._max_bytes = max_bytes
        self._held = 0
        self._of_clients: Counter[str] = Counter()
        self._most = 0  # since memory was given back

    def fits(self, num_bytes: int) -> bool:
        """Tell whether there is room for so many bytes."""
        return self._held + num_bytes <= self._max_bytes

    def take(self, num_bytes: int, client: str = "", before: int = 0) -> None:
        """Count bytes in.

        Args:
            num_bytes: to be counted in.
            client: the identity of `Client`; empty to count for none.
            before: what is counted of the same body already.

        Raises:
            RateLimited: they are too many for this client.
            Overloaded: they are too many for all.
        """
        if not num_bytes:
            return
        of_client = self._of_clients[client] if client else 0
        if of_client > before and of_client + num_bytes > self._max_bytes // 2:
            raise RateLimited(
                f"the server holds {of_client} bytes of your other requests, and a client has half "
                "of the room; wait for their answers",
                RETRY_AFTER_S,
            )
        if not self.fits(num_bytes):
            raise Overloaded("the server holds as many large bodies as it may", RETRY_AFTER_S)
        if client:
            self._of_clients[client] += num_bytes
        self._held += num_bytes
        self._most = max(self._most, self._held)

    def release(self, num_bytes: int, client: str = "") -> None:
        """Count bytes out."""
        self._held -= num_bytes
        if client and num_bytes:
            self._of_clients[client] -= num_bytes
            if not self._of_clients[client]:
                del self._of_clients[client]
        if not self._held and self._most >= TRIM_BYTES:
            self._most = 0
            give_back_memory()


class BodyLimit:
    """Counts the body of one request while the app reads it.

    Attributes:
        refused: whether the body is refused: it is larger than allowed, by its declared size or
            by its bytes, or too many bodies are held.
        client: the identity of who sends it, once that is known.
        max_bytes: size of the largest body that is taken.
        declared: its size as far as it was declared, or 0.
        num_bytes: what has been read of it.
    """

    def __init__(
        self, receive: Receive, headers: Mapping[str, str], max_bytes: int, budget: BodyBudget
    ) -> None:
        """Check the declared size."""
        declared = headers.get("content-length", "").lstrip("0")
        if not declared.isdecimal():
            declared = "0"
        # Python refuses to read thousands of digits.
        self.refused = len(declared) > len(str(max_bytes)) or int(declared) > max_bytes
        self.declared = 0 if self.refused else int(declared)
        self._receive = receive
        self.max_bytes = max_bytes
        self._budget, self._held, self.client = budget, 0, ""
        self.num_bytes = 0
        self._more_body = True

    async def receive(self) -> Message:
        """Return the next message.

        Raises:
            BodyTooLarge: the body is too large.
            Overloaded: too many bodies are held, of all or of this client.
        """
        if not self.refused:
            message = await self._next()
            self.refused = self.num_bytes > self.max_bytes
        if self.refused:
            raise BodyTooLarge(f"the body is larger than {self.max_bytes} bytes; send less")
        try:
            self._hold()
        except Overloaded:
            self.refused = True
            self.release()
            raise
        return message

    async def read(self) -> bytes:
        """Return the body as it came.

        Raises:
            OfframpError: the body is refused, or the client has left before sending it whole.
        """
        chunks: list[bytes] = []
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise Cancelled("the client has left")
            chunks.append(message.get("body", b""))
            if not message.get("more_body", False):
                return b"".join(chunks)

    def hold_unpacked(self, num_bytes: int) -> None:
        """Count a body that was compressed by its real size.

        Raises:
            BodyTooLarge: it is too large.
            Overloaded: too many bodies are held.
        """
        self.num_bytes = max(self.num_bytes, num_bytes)
        if num_bytes > self.max_bytes:
            raise BodyTooLarge(
                f"the body is larger than {self.max_bytes} bytes when unpacked; send less"
            )
        self._hold()

    def release(self) -> None:
        """Count the body out of those that are held; to be called when the request has ended."""
        self._budget.release(self._held, self.client)
        self._held = 0

    async def discard(self) -> None:
        """Read the rest of the body and drop it, within `MAX_DISCARDED_BYTES` and `DISCARD_S`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(DISCARD_S):
                end = self.num_bytes + MAX_DISCARDED_BYTES
                while self._more_body and self.num_bytes < end:
                    await self._next()

    def _hold(self) -> None:
        # Room for the whole declared body is taken at once. If bodies that arrive together took
        # it bit by bit, none of them might find enough.
        grown = max(0, max(self.num_bytes, self.declared) - FREE_BYTES) - self._held
        self._budget.take(grown, self.client, self._held)
        self._held += grown

    async def _next(self) -> Message:
        message = await self._receive()
        self.num_bytes += len(message.get("body", b""))
        self._more_body = message.get("more_body", False)
        return message
