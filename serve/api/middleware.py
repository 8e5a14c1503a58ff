"""The outermost layer: ids, access, body size, metrics, log lines, unexpected errors."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve.api.body_limit import BodyBudget, BodyLimit
from serve.api.context import AppContext
from serve.api.dialect import Dialect, dialect_of
from serve.api.errors import error_response
from serve.api.guard import route_path
from serve.api.request_record import REQUEST_ID, Recorder, new_record
from serve.errors import Cancelled, OfframpError

log = logging.getLogger(__name__)

INTERNAL = OfframpError("internal error; the server's log has the cause")

_NO_SNIFFING: Final = (b"x-content-type-options", b"nosniff")
# Of pages: no other site may show them in a frame or learn where their reader came from.
_PAGE_HEADERS: Final = {
    "content-security-policy": "default-src 'self'; script-src 'self' 'unsafe-inline'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data:; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
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
        self._recorder = Recorder(context.metrics, context.access_log)
        self._max_body_bytes = limits.max_body_bytes
        self._bodies = BodyBudget(max(limits.max_buffered_bytes, limits.max_body_bytes))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["method"] == "HEAD":  # the HTTP server leaves out the body of the answer
            scope = {**scope, "method": "GET"}
        headers = Headers(scope=scope)
        state = scope.setdefault("state", {})
        state.update(new_record(headers.get(REQUEST_ID, "")))
        body = BodyLimit(receive, headers, self._max_body_bytes, self._bodies)
        state["body"] = body

        async def send_recorded(message: Message) -> None:
            if message["type"] == "http.response.start":
                state.update(code=message["status"], started=True)
                _add_headers(message, state["request_id"])
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
        self._recorder.publish(scope["state"], scope["method"], route)


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
