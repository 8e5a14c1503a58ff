"""The outermost layer: ids, access, body size, metrics, log lines, unexpected errors."""

import asyncio
import logging
import time
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve.api.body_limit import BodyBudget, BodyLimit
from serve.api.context import AppContext
from serve.api.dialect import Dialect, dialect_of
from serve.api.errors import error_response
from serve.api.guard import route_path
from serve.errors import Cancelled, OfframpError
from serve.logs import ACCESS_LOG

log = logging.getLogger(__name__)
access_log = logging.getLogger(ACCESS_LOG)

REQUEST_ID = "x-request-id"
MAX_REQUEST_ID_CHARS = 128

INTERNAL = OfframpError("internal error; the server's log has the cause")

_NO_SNIFFING: Final = (b"x-content-type-options", b"nosniff")
# Of pages: no other site may show them in a frame or learn where their reader came from.
_PAGE_HEADERS: Final = {
    "content-security-policy": "default-src 'self'; script-src 'self' 'unsafe-inline'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data:; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
}

# Routes set `model`, `rows` and `layers`, error handlers `error_code`; the rest is set here.
_INITIAL_STATE: Final = {
    "model": "",
    "rows": 0,
    "layers": 0,
    "client": None,
    "error_code": "",
    "started": False,
    "code": HTTPStatus.INTERNAL_SERVER_ERROR,
}


class RequestMiddleware:
    """ASGI middleware around the app."""

    def __init__(self, app: ASGIApp, context: AppContext, dialects: Sequence[Dialect] = ()) -> None:
        """Wrap an app.

        Args:
            app: answers the requests.
            context: the app's.
            dialects: that it speaks.
        """
        self._dialects = dialects
        limits = context.limits
        self._app = app
        self._guard = context.guard
        self._metrics = context.metrics
        self._max_body_bytes = limits.max_body_bytes
        self._bodies = BodyBudget(max(limits.max_buffered_bytes, limits.max_body_bytes))
        self._logs_access = context.access_log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        arrived_s = time.monotonic()
        if scope["method"] == "HEAD":  # the HTTP server leaves out the body of the answer
            scope = {**scope, "method": "GET"}
        headers = Headers(scope=scope)
        state = scope.setdefault("state", {})
        request_id = headers.get(REQUEST_ID, "")[:MAX_REQUEST_ID_CHARS] or uuid4().hex
        state.update(_INITIAL_STATE, arrived_s=arrived_s, request_id=request_id)
        body = BodyLimit(receive, headers, self._max_body_bytes, self._bodies)
        state["body"] = body

        async def send_recorded(message: Message) -> None:
            if message["type"] == "http.response.start":
                state.update(code=message["status"], started=True)
                _add_headers(message, request_id)
            await (_send_and_close(message, body, send) if body.exceeded else send(message))

        try:
            state["client"] = self._guard.check(scope, headers, self._dialects)
            await self._app(scope, body.receive, send_recorded)
        except asyncio.CancelledError:  # Ray Serve cancels when the client has disconnected
            state["code"] = Cancelled.status
            raise
        except Exception as error:
            dialect = dialect_of(route_path(scope), self._dialects)
            await _answer_error(error, dialect, scope, receive, send_recorded)
        finally:
            body.release()
            self._record(scope)

    def _record(self, scope: Scope) -> None:
        # Unknown paths share one label, so that clients cannot add series to the metrics.
        route = getattr(scope.get("route"), "path", "other")
        state = scope["state"]
        duration_s = time.monotonic() - state["arrived_s"]
        self._metrics.request(state["model"], route, int(state["code"]), duration_s)
        if state["error_code"]:
            self._metrics.rejected(state["model"], state["error_code"])
        if self._logs_access:
            access_log.info("request", extra={"fields": _access_fields(scope, route, duration_s)})


async def _answer_error(
    error: Exception, dialect: Dialect, scope: Scope, receive: Receive, send: Send
) -> None:
    """Answer what the guard refuses, and what the app does not expect."""
    state = scope["state"]
    if isinstance(error, OfframpError):
        refusal = error
    else:
        log.error("request %s failed", state["request_id"], exc_info=error)
        refusal = INTERNAL
    state["error_code"] = refusal.code
    if state["started"]:
        raise error  # too late for another answer: the HTTP server closes the connection
    await error_response(refusal, dialect)(scope, receive, send)


def _access_fields(scope: Scope, route: str, duration_s: float) -> dict[str, Any]:
    """Return what the line of a request says; never what the request says."""
    state = scope["state"]
    client = state["client"]
    return {
        "id": state["request_id"],
        "key": client.name if client else "",
        "method": scope["method"],
        "route": route,
        "status": int(state["code"]),
        "error": state["error_code"],
        "model": state["model"],
        "rows": state["rows"],
        "layers": state["layers"],
        "ms": round(duration_s * 1e3, 3),
    }


def _add_headers(message: Message, request_id: str) -> None:
    headers = MutableHeaders(scope=message)
    headers.setdefault(REQUEST_ID, request_id)
    headers.raw.append(_NO_SNIFFING)
    if headers.get("content-type", "").startswith("text/html"):
        headers.update(_PAGE_HEADERS)


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
