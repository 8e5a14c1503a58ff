"""Errors as JSON: one shape for every answer that is not 2xx."""

import logging

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from serve.errors import (
    InvalidRequest,
    MalformedBody,
    MethodNotAllowed,
    NotFound,
    OfframpError,
    Overloaded,
)
from serve.explain import explain_findings

log = logging.getLogger(__name__)


def problem_response(error: OfframpError) -> Response:
    """Return the response for an expected error."""
    body = {"error": {"code": error.code, "message": str(error)}}
    headers = {}
    if isinstance(error, Overloaded):
        headers["Retry-After"] = str(error.retry_after_s)
    return JSONResponse(body, error.status, headers)


def add_problem_handlers(app: FastAPI) -> None:
    """Make the app answer every error in our shape."""

    @app.exception_handler(OfframpError)
    async def expected(request: Request, error: OfframpError) -> Response:
        return problem_response(error)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        return problem_response(_from_findings(error))

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        return problem_response(_from_http(request, error))

    @app.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> Response:
        # Starlette re-raises it after this answer, and the server logs it in full.
        return problem_response(OfframpError("internal error; the server's log has the cause"))


def _from_findings(error: RequestValidationError) -> OfframpError:
    findings = error.errors()
    for finding in findings:
        finding["loc"] = tuple(finding["loc"])[1:]  # without the leading "body"
        if finding["type"] == "json_invalid":
            reason = finding.get("ctx", {}).get("error", "syntax error")
            where = f" at character {finding['loc'][0]}" if finding["loc"] else ""
            return MalformedBody(f"the body is not JSON: {reason}{where}")
    return InvalidRequest(explain_findings(findings))


def _from_http(request: Request, error: HTTPException) -> OfframpError:
    if isinstance(error.__cause__, OfframpError):
        return error.__cause__
    if error.status_code == NotFound.status:
        return NotFound(f"no route {request.url.path}; /docs lists those there are")
    if error.status_code == MethodNotAllowed.status:
        allowed = (error.headers or {}).get("Allow", "")
        return MethodNotAllowed(
            f"{request.method} does not apply to {request.url.path}; use {allowed}"
        )
    return MalformedBody("the body is not JSON in UTF-8")
