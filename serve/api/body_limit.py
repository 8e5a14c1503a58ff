"""Bounds the body of one request."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from starlette.types import Receive

from serve.access.held_bytes import FREE_BYTES, Held, HeldBytes
from serve.errors import BodyTooLarge, Cancelled, Overloaded
from serve.http.connection import MAX_DISCARDED_BYTES

# The rest of a body that is refused is read and dropped for so long: some clients read the answer
# only after they have sent all.
DISCARD_S = 5.0


class BodyLimit:
    """Reads the body of one request, and counts it until the request has ended.

    Attributes:
        refused: whether the body is refused: it is larger than allowed, by its declared size or
            by its bytes, or too many bodies are held.
        client: the identity of the sender, once that is known.
        max_bytes: size of the largest body that is taken.
        declared: the body's declared size; 0 if there is none.
        num_bytes: what has been read of it.
    """

    def __init__(
        self, receive: Receive, headers: Mapping[str, str], max_bytes: int, bodies: HeldBytes
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
        self._bodies, self.client = bodies, ""
        self._held: Held | None = None
        self.num_bytes = 0
        self._more_body = True

    async def read(self) -> bytes:
        """Return the body as it came.

        Raises:
            BodyTooLarge: it is too large.
            Overloaded: too many bodies are held, of all or of this client.
            Cancelled: the client has left before sending it whole.
        """
        chunks: list[bytes] = []
        while self._more_body:
            if not self.refused:
                chunks.append(await self._next())
                self.refused = self.num_bytes > self.max_bytes
            if self.refused:
                raise BodyTooLarge(f"the body is larger than {self.max_bytes} bytes; send less")
            try:
                self._hold()
            except Overloaded:
                self.refused = True
                self.release()
                raise
        return b"".join(chunks)

    def hold_unpacked(self, num_bytes: int) -> None:
        """Count a compressed body by its unpacked size.

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
        if self._held:
            self._bodies.release(self._held)

    async def discard(self) -> None:
        """Read the rest of the body and drop it, within `MAX_DISCARDED_BYTES` and `DISCARD_S`."""
        with suppress(TimeoutError, Cancelled):
            async with asyncio.timeout(DISCARD_S):
                end = self.num_bytes + MAX_DISCARDED_BYTES
                while self._more_body and self.num_bytes < end:
                    await self._next()

    def _hold(self) -> None:
        # Room for the whole declared body is taken at once. If bodies that arrive together took
        # it bit by bit, none of them might find enough.
        num_bytes = max(self.num_bytes, self.declared)
        if self._held:
            self._bodies.grow(self._held, num_bytes)
        elif num_bytes > FREE_BYTES:
            self._held = self._bodies.hold(self.client, num_bytes)

    async def _next(self) -> bytes:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise Cancelled("the client has left")
        part: bytes = message.get("body", b"")
        self.num_bytes += len(part)
        self._more_body = message.get("more_body", False)
        return part
