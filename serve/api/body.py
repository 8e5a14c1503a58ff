"""Request bodies, parsed strictly and in bounded time."""

import asyncio
import time
from collections.abc import Collection
from typing import Final, TypeVar
from urllib.parse import parse_qsl

from pydantic import BaseModel, ValidationError

from serve.api.json_decoding import parse_json
from serve.api.request import Request
from serve.api.response import JSON
from serve.errors import InvalidRequest, MalformedBody, UnsupportedMediaType
from serve.validation import explain

Body = TypeVar("Body", bound=BaseModel)

MERGE_PATCH: Final = "application/merge-patch+json"
# What curl says with -d if nothing else is said.
CURLS_FORM: Final = "application/x-www-form-urlencoded"

_LARGE_BYTES: Final = 64 * 1024
_MAX_QUERY_CHARS: Final = 256


async def read_json(
    request: Request,
    schema: type[Body],
    types: Collection[str] = (JSON,),
    optional: bool = False,
) -> Body:
    """Return the body of a request as a schema.

    Args:
        request: the request.
        schema: whose defaults stand for an optional body.
        types: the media types it may be of.
        optional: whether it may be empty.

    Raises:
        OfframpError: the body is refused, or the client has left before sending it whole.
    """
    headers = request.headers
    # Browsers ask before a page of another site may send JSON; other types they send unasked.
    if media_type(request) not in types:
        raise not_json()
    _check_encoding(headers.get("content-encoding", "identity"))
    check_query(request)
    body = await read_bytes(request)
    if not body and optional:
        return schema()
    if not body:
        raise MalformedBody("the body is empty; send a JSON object")
    document = parse_json(body)
    await give_way(len(body))
    try:
        return schema.model_validate(document, from_attributes=True)
    except ValidationError as error:
        raise InvalidRequest(explain(error)) from None


async def read_bytes(request: Request) -> bytes:
    """Return the body of a request as it came.

    Raises:
        OfframpError: the body is refused, or the client has left before sending it whole.
    """
    body = b""
    if request.body:
        request.client.check_body(request.body.declared)
        body = await request.body.read()
        request.client.take_body(len(body))
    request.read_s = time.monotonic()
    return body


async def give_way(num_bytes: int) -> None:
    """Let the event loop answer others between two steps of the work on a large body."""
    if num_bytes > _LARGE_BYTES:
        await asyncio.sleep(0)


def media_type(request: Request) -> str:
    """Return what the body is declared as; curl's form with a key, which no page knows, is JSON."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return JSON if kind == CURLS_FORM and request.client.key else kind


def not_json() -> UnsupportedMediaType:
    """Return the error of a body that is not declared as JSON."""
    return UnsupportedMediaType(
        f"send JSON, with the header Content-Type: {JSON} (curl: -H 'Content-Type: {JSON}')"
    )


def _check_encoding(encoding: str) -> None:
    if encoding.strip().lower() != "identity":
        raise UnsupportedMediaType("send the body as it is, without a Content-Encoding")


def check_query(request: Request) -> None:
    """Refuse query parameters, which no route with a body has."""
    if not request.query:
        return
    # Ignoring a misplaced `dry_run=true` would do the opposite of what was meant.
    given = parse_qsl(request.query[:_MAX_QUERY_CHARS], keep_blank_values=True)
    if names := ", ".join(sorted({name[:64] for name, _ in given})):
        raise InvalidRequest(f"{names}: no query parameters here; everything goes into the body")
