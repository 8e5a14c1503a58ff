"""Errors as JSON: one shape for each dialect."""

from collections.abc import Sequence

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from serve.api.dialect import V1, Dialect, dialect_of
from serve.api.guard import route_path
from serve.errors import MethodNotAllowed, NotFound, OfframpError, Overloaded, Unauthorized


def error_response(error: OfframpError, dialect: Dialect = V1) -> Response:
    """Return the response for an expected error, as a dialect's clients read it."""
    body = dialect.error_body(error, dialect.message(error))
    headers = {}
    if isinstance(error, Overloaded):
        headers["Retry-After"] = str(error.retry_after_s)
    if isinstance(error, Unauthorized):
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, MethodNotAllowed):
        headers["Allow"] = error.allowed
    status = dialect.statuses.get(error.status, error.status)
    return JSONResponse(body, status, headers)


def add_error_handlers(app: FastAPI, dialects: Sequence[Dialect]) -> None:
    """Make the app answer expected errors as JSON; the middleware answers unexpected ones."""

    @app.exception_handler(OfframpError)
    async def expected(request: Request, error: OfframpError) -> Response:
        request.state.error_code = error.code  # the middleware counts it
        return error_response(error, dialect_of(route_path(request.scope), dialects))

    @app.exception_handler(HTTPException)
    async def not_routed(request: Request, error: HTTPException) -> Response:
        return await expected(request, _routing_error(request, error))


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
