"""An answer over HTTP, and its way to the client."""

import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final, Protocol

from pydantic import BaseModel
from starlette.datastructures import MutableHeaders
from starlette.types import Message, Send

from serve.access.held_bytes import FREE_BYTES, Held, HeldBytes
from serve.api.context import AppContext
from serve.api.request import ARM, BUNDLE, REPLICA, REQUEST_ID, BodyLimit, Request

JSON: Final = "application/json"
# A counted answer is sent in pieces of this size; each goes once the client has taken the one
# before.
PIECE_BYTES: Final = 64 * 1024
_NO_SNIFFING: Final = (b"x-content-type-options", b"nosniff")
_REQUEST_ID: Final = REQUEST_ID.encode()
_BUNDLE: Final = BUNDLE.encode()
_ARM: Final = ARM.encode()
# Headers of pages: no other site may show them in a frame or learn where their reader came from.
_PAGE_HEADERS: Final = {
    "content-security-policy": "default-src 'self'; script-src 'self' 'unsafe-inline'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data:; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
}


class Sendable(Protocol):
    """What a route answers with: a `Response`, or a stream."""

    async def send(self, send: Send) -> None:
        """Send it."""
        ...


@dataclass(frozen=True, slots=True)
class Response:
    """An answer whose body is there.

    Attributes:
        content: the body.
        headers: headers beside type and length.
        media_type: the body's type; empty for an answer without one.
        status: the HTTP status.
    """

    content: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    media_type: str = JSON
    status: int = HTTPStatus.OK.value

    @property
    def raw_headers(self) -> list[tuple[bytes, bytes]]:
        """All headers, as ASGI has them."""
        raw = []
        if self.status != HTTPStatus.NOT_MODIFIED:
            raw.append((b"content-length", str(len(self.content)).encode()))
        if self.media_type:
            raw.append((b"content-type", self.media_type.encode("latin-1")))
        for name, text in self.headers.items():
            raw.append((name.lower().encode("latin-1"), text.encode("latin-1")))
        return raw

    async def send(self, send: Send) -> None:
        """Send it."""
        start = {"type": "http.response.start", "status": self.status, "headers": self.raw_headers}
        await send(start)
        await send({"type": "http.response.body", "body": self.content})


def json_response(
    shown: BaseModel, headers: Mapping[str, str] | None = None, exclude_none: bool = False
) -> Response:
    """Return a model as JSON."""
    content = shown.model_dump_json(by_alias=True, exclude_none=exclude_none).encode()
    return Response(content, headers or {})


class OwnHeaders:
    """Adds to every answer what the server says of itself and of the request."""

    def __init__(self, context: AppContext) -> None:
        self._behind_proxy, replica = context.behind_proxy, context.replicas.own_id
        self._same = [_NO_SNIFFING, *([(REPLICA.encode(), replica.encode())] if replica else [])]

    def add(self, message: Message, request: Request) -> None:
        headers: list[tuple[bytes, bytes]] = [*message["headers"], *self._same]
        if not self._behind_proxy:  # Ray Serve's proxy adds the id itself
            headers.append((_REQUEST_ID, request.request_id.encode("latin-1")))
        if request.bundle:
            headers.append((_BUNDLE, request.bundle.encode()))
        if request.arm is not None:
            headers.append((_ARM, request.arm.name.encode()))
        message["headers"] = headers
        if any(name == b"content-type" and text.startswith(b"text/html") for name, text in headers):
            own = MutableHeaders(raw=headers)
            for name, text in _PAGE_HEADERS.items():
                own.setdefault(name, text)


class SentAnswer:
    """Sends the answer to a request, and notes in the request what becomes of it."""

    __slots__ = ("_answers", "_held", "_own_headers", "_request", "_send")

    def __init__(
        self, request: Request, answers: HeldBytes, own_headers: OwnHeaders, send: Send
    ) -> None:
        self._request, self._answers, self._send = request, answers, send
        self._own_headers = own_headers
        self._held: Held | None = None

    async def send(self, message: Message) -> None:
        request, body = self._request, self._request.body
        if message["type"] == "http.response.start":
            self._hold(message["headers"])
            request.code, request.started = message["status"], True
            self._own_headers.add(message, request)
        elif not message.get("more_body", False):
            request.answered_s = time.monotonic()
        if body and body.refused:
            await _send_and_close(message, body, self._send)
        elif self._held and message["type"] == "http.response.body":
            await self._send_in_pieces(self._held, message)
        else:
            await self._send(message)

    def release(self) -> None:
        """Count the answer out; to be called when the request has ended."""
        if self._held:
            self._answers.release(self._held)

    def _hold(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Count an answer that is large until its client has taken it, or it is given up."""
        size = next((int(text) for name, text in headers if name == b"content-length"), 0)
        task = asyncio.current_task()
        if size > FREE_BYTES and task:
            self._held = self._answers.hold(self._request.client.identity, size, task.cancel)

    async def _send_in_pieces(self, held: Held, message: Message) -> None:
        body, more_body = message.get("body", b""), message.get("more_body", False)
        for begin in range(0, max(1, len(body)), PIECE_BYTES):
            end = begin + PIECE_BYTES
            more = more_body or end < len(body)
            await self._send({**message, "body": body[begin:end], "more_body": more})
            self._answers.moved(held)


async def _send_and_close(message: Message, body: BodyLimit, send: Send) -> None:
    """Send a message of the answer to a body that is too large.

    The answer goes out at once, and the connection is closed after the body has been discarded.
    """
    if message["type"] == "http.response.start":
        MutableHeaders(scope=message)["connection"] = "close"
        await send(message)
        return
    await send({**message, "more_body": True})
    await body.discard()
    await send({"type": "http.response.body"})
