"""The outermost layer: request ids, body size, metrics, unexpected errors."""

import asyncio
import logging
import time
from http import HTTPStatus
from typing import Final
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve.api.body_limit import BodyBudget, BodyLimit
from serve.api.errors import error_response
from serve.config import WebLimits
from serve.errors import Cancelled, OfframpError
from serve.metrics.collectors import Metrics

log = logging.getLogger(__name__)

REQUEST_ID = "x-request-id"
MAX_REQUEST_ID_CHARS = 128

INTERNAL = OfframpError("internal error; the server's log has the cause")

# Routes set `model`, error handlers `error_code`; the rest is set here.
_INITIAL_STATE: Final = {
    "model": "",
    "error_code": "",
    "started": False,
    "code": HTTPStatus.INTERNAL_SERVER_ERROR,
}


class RequestMiddleware:
    """ASGI middleware around the app."""

    def __init__(self, app: ASGIApp, metrics: Metrics, limits: WebLimits) -> None:
        """Wrap an app.

        Args:
            app: answers the requests.
            metrics: counts the requests.
            limits: on bodies.
        """
        self._app = app
        self._metrics = metrics
        self._max_body_bytes = limits.max_body_bytes
        self._bodies = BodyBudget(max(limits.max_buffered_bytes, limits.max_body_bytes))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        arrived_s = time.monotonic()
        if scope["method"] == "HEAD":  # the HTTP server leaves out the body of the answer
            scope = {**scope, "method": "GET"}
        headers = Headers(scope=scope)
        request_id = headers.get(REQUEST_ID, "")[:MAX_REQUEST_ID_CHARS] or uuid4().hex
        state = scope.setdefault("state", {})
        state.update(_INITIAL_STATE, arrived_s=arrived_s)
        body = BodyLimit(receive, headers, self._max_body_bytes, self._bodies)

        async def send_recorded(message: Message) -> None:
            if message["type"] == "http.response.start":
                state.update(code=message["status"], started=True)
                MutableHeaders(scope=message).setdefault(REQUEST_ID, request_id)
            await (_send_and_close(message, body, send) if body.exceeded else send(message))

        try:
            await self._app(scope, body.receive, send_recorded)
        except asyncio.CancelledError:  # Ray Serve cancels when the client has disconnected
            state["code"] = Cancelled.status
            raise
        except Exception:
            log.exception("request %s failed", request_id)
            state["error_code"] = INTERNAL.code
            if state["started"]:
                raise  # too late for another answer: the HTTP server closes the connection
            await error_response(INTERNAL)(scope, receive, send_recorded)
        finally:
            self._end(scope, body)

    def _end(self, scope: Scope, body: BodyLimit) -> None:
        body.release()
        # Unknown paths share one label, so that clients cannot add series to the metrics.
        route = getattr(scope.get("route"), "path", "other")
        state = scope["state"]
        duration_s = time.monotonic() - state["arrived_s"]
        self._metrics.request(state["model"], route, int(state["code"]), duration_s)
        if state["error_code"]:
            self._metrics.rejected(state["model"], state["error_code"])


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
