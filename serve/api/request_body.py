"""Bodies read strictly, and so that no body can hold up everybody else."""

import json
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect

from serve.api.schemas.error import ErrorBody
from serve.errors import Cancelled, InvalidRequest, MalformedBody, UnsupportedMediaType
from serve.validation import explain

Body = TypeVar("Body", bound=BaseModel)

BODY_ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"model": ErrorBody, "description": "The body is not JSON."},
    413: {"model": ErrorBody, "description": "The body is too large."},
    415: {"model": ErrorBody, "description": "The body is not declared as JSON, or is compressed."},
}

EMPTY_BODY = "the body is empty; send a JSON object"

# More than anything we take has. Naming each of 200,000 unknown fields takes seconds, on the
# event loop.
MAX_FIELDS = 128


class JsonRoute(APIRoute):
    """A route that wants its body declared as JSON.

    Refuses what JSON parsers disagree about: encodings, repeated fields.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return FastAPI's handler over a request that parses its body our way."""
        handle = super().get_route_handler()

        async def handle_strictly(request: Request) -> Response:
            if request.method in ("POST", "PUT"):
                _check_declared(request)
            return await handle(_StrictRequest(request.scope, request.receive))

        return handle_strictly


async def read_body(request: Request, model: type[Body]) -> Body:
    """Return the body as FastAPI would pass it to an endpoint of a `JsonRoute`.

    Raises:
        OfframpError: it is refused, as there, or does not come.
    """
    _check_declared(request)
    try:
        body = await request.body()
    except ClientDisconnect:
        raise Cancelled("the client has left") from None
    if not body:
        raise MalformedBody(EMPTY_BODY)
    try:
        return model.model_validate(_parsed(body), from_attributes=True)
    except json.JSONDecodeError as error:
        raise not_json(error.msg, error.pos) from None
    except ValidationError as error:
        raise InvalidRequest(explain(error)) from None


def not_json(reason: str, position: int) -> MalformedBody:
    """Return the error for a body that is no JSON, by Python's reason."""
    reason = reason.removesuffix(" at").rstrip(" :")  # as some end themselves
    return MalformedBody(f"the body is not JSON: {reason} at character {position}")


def _check_declared(request: Request) -> None:
    _check_media_type(request.headers.get("content-type", ""))
    _check_encoding(request.headers.get("content-encoding", "identity"))
    _check_query(request)


def _check_media_type(content_type: str) -> None:
    # Also keeps other sites' pages from posting here: a browser asks first before it sends JSON.
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise UnsupportedMediaType("send JSON, with the header Content-Type: application/json")


def _check_encoding(encoding: str) -> None:
    if encoding.strip().lower() != "identity":
        raise UnsupportedMediaType("send the body as it is, without a Content-Encoding")


def _check_query(request: Request) -> None:
    if not request.scope["query_string"]:
        return
    # A misplaced `dry_run=true` must not do the opposite of what was meant.
    if names := ", ".join(sorted({name[:64] for name in request.query_params})):
        raise InvalidRequest(f"{names}: no query parameters here; everything goes into the body")


class _StrictRequest(Request):
    async def json(self) -> Any:
        return _parsed(await self.body())


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body.decode(), object_pairs_hook=_object)
    except json.JSONDecodeError:
        raise  # it says where
    except UnicodeDecodeError as error:
        raise MalformedBody(f"the body is not UTF-8 at byte {error.start}") from None
    except RecursionError:
        raise MalformedBody("the body is nested too deeply") from None
    except ValueError:
        raise MalformedBody("the body has a number with too many digits") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > MAX_FIELDS:
        raise MalformedBody(
            f"the body has an object of {len(pairs)} fields; none needs more than {MAX_FIELDS}"
        )
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise MalformedBody(f"the body has the field {twice[:64]!r} twice in one object")
    return fields
