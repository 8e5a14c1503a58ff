"""An answer over HTTP."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final, Protocol

from pydantic import BaseModel
from starlette.types import Send

JSON: Final = "application/json"


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
