"""Errors as JSON: one shape for each dialect."""

import asyncio
import logging
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from serve.api.dialect import OWN, Dialect
from serve.api.record import REQUEST_ID, RequestRecord, new_request_id, who
from serve.errors import (
    AnswersWait,
    InvalidRequest,
    MethodNotAllowed,
    NotFound,
    OfframpError,
    Overloaded,
    Unauthorized,
)
from serve.logs import fields
from serve.validation import explain_details

log = logging.getLogger(__name__)

_INTERNAL: Final = OfframpError("internal error; the server's log has the cause")


def expected(error: BaseException, record: RequestRecord) -> OfframpError:
    """Return the error that the client gets, and note it; raise where the answer has begun."""
    refusal = error if isinstance(error, OfframpError) else _INTERNAL
    if refusal.status == OfframpError.status:
        cause = None if refusal is error else error
        told = "request %s failed: %s", record.request_id, refusal.code
        log.error(*told, extra=fields(**who(record)), exc_info=cause)
    record.error_code, record.why = refusal.code, str(refusal)
    if record.started:
        raise error  # too late for another answer: the HTTP server closes the connection
    return refusal


def error_response(error: OfframpError, dialect: Dialect = OWN) -> Response:
    """Return the response for an expected error, as a dialect's clients read it."""
    body = dialect.error_body(error, dialect.message(error))
    headers = {}
    if isinstance(error, Overloaded):
        headers["Retry-After"] = str(error.retry_after_s)
    if isinstance(error, AnswersWait):
        headers["Connection"] = "close"
    if isinstance(error, Unauthorized):
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, MethodNotAllowed):
        headers["Allow"] = error.allowed
    status = dialect.statuses.get(error.status, error.status)
    return JSONResponse(body, status, headers)


def described(error: OfframpError) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """Describe the error of a request that has not reached the app, for the HTTP server."""
    response = error_response(error)
    headers = [header for header in response.raw_headers if header[0] != b"content-length"]
    return [*headers, (REQUEST_ID.encode(), new_request_id().encode())], bytes(response.body)


def add_error_handlers(app: FastAPI) -> None:
    """Let FastAPI pass on what it finds no route for, or reads no parameters of, as our errors."""

    @app.exception_handler(HTTPException)
    async def not_routed(request: Request, error: HTTPException) -> Response:
        # On a thread, because the methods of a path stand in a document that may not be made yet.
        raise await asyncio.to_thread(_routing_error, request, error)

    @app.exception_handler(RequestValidationError)
    async def wrong_parameters(request: Request, error: RequestValidationError) -> Response:
        details: list[Any] = [{**each, "loc": each["loc"][1:]} for each in error.errors()]
        raise InvalidRequest(explain_details(details))


def _routing_error(request: Request, error: HTTPException) -> OfframpError:
    """Return our error for Starlette's 404 or 405, the only ones that it raises."""
    path = request.url.path
    if error.status_code == NotFound.status:
        return NotFound(f"no route {path}; /docs lists those there are")
    allowed = _allowed_methods(request) or (error.headers or {}).get("Allow", "")
    return MethodNotAllowed(f"{request.method} does not apply to {path}; use {allowed}", allowed)


def _allowed_methods(request: Request) -> str:
    """Return all methods of the path; Starlette knows only those of the first matching route."""
    path = getattr(request.scope.get("route"), "path", None)
    methods = (method.upper() for method in request.app.openapi()["paths"].get(path, ()))
    return ", ".join("GET, HEAD" if method == "GET" else method for method in methods)
