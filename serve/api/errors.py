"""Errors as JSON: one shape for each dialect."""

import orjson

from serve.api.request import REQUEST_ID, new_request_id
from serve.api.response import Response
from serve.api.route import OWN, Dialect
from serve.errors import (
    AnswersWait,
    MethodNotAllowed,
    OfframpError,
    Overloaded,
    Unauthorized,
)


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
