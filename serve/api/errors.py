"""Errors as JSON: one shape for each dialect."""

import logging
from typing import Final

import orjson

from serve.api.dialect import OWN, Dialect
from serve.api.request import REQUEST_ID, Request, new_request_id
from serve.api.response import Response
from serve.errors import (
    AnswersWait,
    MethodNotAllowed,
    OfframpError,
    Overloaded,
    Unauthorized,
)
from serve.logs import fields

log = logging.getLogger(__name__)

_INTERNAL: Final = OfframpError("internal error; the server's log has the cause")


def expected(error: BaseException, request: Request) -> OfframpError:
    """Return the error that the client gets, and note it; raise where the answer has begun."""
    refusal = error if isinstance(error, OfframpError) else _INTERNAL
    if refusal.status == OfframpError.status:
        cause = None if refusal is error else error
        told = "request %s failed: %s", request.request_id, refusal.code
        log.error(*told, extra=fields(**request.log_fields), exc_info=cause)
    request.error_code, request.why = refusal.code, str(refusal)
    if request.started:
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
    return Response(orjson.dumps(body), headers, status=status)


def described(error: OfframpError) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """Describe the error of a request that has not reached the app, for the HTTP server."""
    response = error_response(error)
    headers = [header for header in response.raw_headers if header[0] != b"content-length"]
    return [*headers, (REQUEST_ID.encode(), new_request_id().encode())], response.content
