"""Bounds the body of one request."""

import asyncio
from contextlib import suppress

from starlette.datastructures import Headers
from starlette.types import Message, Receive

from serve.errors import BodyTooLarge

# Clients such as urllib read the answer only after they have sent the whole body. Closing the
# connection earlier resets it, and the answer is lost; so the rest is read and dropped, as far as
# these bounds.
MAX_DISCARDED_BYTES = 16 * 1024 * 1024
DISCARD_S = 5.0


class BodyLimit:
    """Counts the body of one request while the app reads it.

    Attributes:
        exceeded: whether the body is larger than allowed, by its declared size or by its bytes.
    """

    def __init__(self, receive: Receive, headers: Headers, max_bytes: int) -> None:
        """Check the declared size.

        Args:
            receive: of the request.
            headers: of the request.
            max_bytes: size of the largest body that is taken.
        """
        declared = headers.get("content-length", "")
        # Python refuses to read thousands of digits.
        too_long = len(declared.lstrip("0")) > len(str(max_bytes))
        self.exceeded = declared.isdecimal() and (too_long or int(declared) > max_bytes)
        self._receive = receive
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._more_body = True

    async def receive(self) -> Message:
        """Return the next message.

        Raises:
            BodyTooLarge: the body is too large.
        """
        if not self.exceeded:
            message = await self._next()
            self.exceeded = self._num_bytes > self._max_bytes
        if self.exceeded:
            raise BodyTooLarge(f"the body is larger than {self._max_bytes} bytes; send less")
        return message

    async def discard(self) -> None:
        """Read the rest of the body and drop it, within `MAX_DISCARDED_BYTES` and `DISCARD_S`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(DISCARD_S):
                end = self._num_bytes + MAX_DISCARDED_BYTES
                while self._more_body and self._num_bytes < end:
                    await self._next()

    async def _next(self) -> Message:
        message = await self._receive()
        self._num_bytes += len(message.get("body", b""))
        self._more_body = message.get("more_body", False)
        return message
