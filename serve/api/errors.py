"""Errors as JSON: one shape for every answer that is not 2xx."""

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from serve.api.request_body import EMPTY_BODY, not_json
from serve.errors import (
    InvalidRequest,
    MalformedBody,
    MethodNotAllowed,
    NotFound,
    OfframpError,
    Overloaded,
)
from serve.validation import explain_findings

# Messages quote what was sent, which may be long.
MAX_MESSAGE_CHARS = 1000


def problem_response(error: OfframpError) -> Response:
    """Return the response for an expected error."""
    message = str(error)
    if len(message) > MAX_MESSAGE_CHARS:
        message = message[:MAX_MESSAGE_CHARS] + " ..."
    body = {"error": {"code": error.code, "message": message}}
    headers = {}
    if isinstance(error, Overloaded):
        headers["Retry-After"] = str(error.retry_after_s)
    if isinstance(error, MethodNotAllowed):
        headers["Allow"] = error.allowed
    return JSONResponse(body, error.status, headers)


def add_problem_handlers(app: FastAPI) -> None:
    """Make the app answer expected errors in our shape; the edge does so for all others."""

    @app.exception_handler(OfframpError)
    async def expected(request: Request, error: OfframpError) -> Response:
        return answer_error(request, error)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        return answer_error(request, _from_findings(error))

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        return answer_error(request, _from_http(request, error))


def answer_error(request: Request, error: OfframpError) -> Response:
    """Return the response for an expected error, and note it for the edge."""
    request.state.error_code = error.code  # for the edge, which counts
    return problem_response(error)


def _from_findings(error: RequestValidationError) -> OfframpError:
    findings = error.errors()
    for finding in findings:
        finding["loc"] = tuple(finding["loc"])[1:]  # without the leading "body"
        if finding["type"] == "json_invalid":
            return not_json(finding["ctx"]["error"], finding["loc"][0])
        if finding["type"] == "missing" and not finding["loc"]:
            return MalformedBody(EMPTY_BODY)
    return InvalidRequest(explain_findings(findings))


def _from_http(request: Request, error: HTTPException) -> OfframpError:
    if isinstance(error.__cause__, OfframpError):
        return error.__cause__
    if error.status_code == NotFound.status:
        return NotFound(f"no route {request.url.path}; /docs lists those there are")
    if error.status_code == MethodNotAllowed.status:
        allowed = _methods(request) or (error.headers or {}).get("Allow", "")
        return MethodNotAllowed(
            f"{request.method} does not apply to {request.url.path}; use {allowed}", allowed
        )
    return MalformedBody("the body is not JSON in UTF-8")


def _methods(request: Request) -> str:
    """Return all methods of the path; Starlette tells only those of its first route."""
    path = getattr(request.scope.get("route"), "path", None)
    methods = (method.upper() for method in request.app.openapi()["paths"].get(path, ()))
    return ", ".join("GET, HEAD" if method == "GET" else method for method in methods)
