"""The outermost layer: limits the body, counts requests, passes on request ids."""

import asyncio
import logging
import time
from http import HTTPStatus
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve.api.errors import problem_response
from serve.errors import BodyTooLarge, Cancelled, OfframpError
from serve.metrics.collectors import Metrics

log = logging.getLogger(__name__)

REQUEST_ID = "x-request-id"
MAX_REQUEST_ID_CHARS = 128

INTERNAL = OfframpError("internal error; the server's log has the cause")


class RequestMiddleware:
    """ASGI middleware around the app."""

    def __init__(self, app: ASGIApp, metrics: Metrics, max_body_bytes: int) -> None:
        """Wrap an app.

        Args:
            app: what answers.
            metrics: where requests are counted.
            max_body_bytes: largest body that is read.
        """
        self._app = app
        self._metrics = metrics
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        arrived_s = time.monotonic()
        if scope["method"] == "HEAD":  # a GET whose answer's body the HTTP server keeps to itself
            scope = {**scope, "method": "GET"}
        headers = Headers(scope=scope)
        request_id = headers.get(REQUEST_ID, "")[:MAX_REQUEST_ID_CHARS] or uuid4().hex
        state = scope.setdefault("state", {})
        state.update(arrived_s=arrived_s, model="", error_code="", started=False)
        state["code"] = HTTPStatus.INTERNAL_SERVER_ERROR

        async def send_noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                state.update(code=message["status"], started=True)
                MutableHeaders(scope=message).setdefault(REQUEST_ID, request_id)
            await send(message)

        try:
            await self._app(scope, self._limited(receive, headers), send_noting)
        except asyncio.CancelledError:  # Ray Serve's way of saying that the client has left
            state["code"] = Cancelled.status
            raise
        except Exception:
            log.exception("request %s failed", request_id)
            state["error_code"] = INTERNAL.code
            if state["started"]:
                raise  # too late for another answer: the server cuts the connection
            await problem_response(INTERNAL)(scope, receive, send_noting)
        finally:
            self._count(scope, time.monotonic() - arrived_s)

    def _limited(self, receive: Receive, headers: Headers) -> Receive:
        declared = headers.get("content-length", "0")
        received = int(declared) if declared.isdecimal() else 0
        if received <= self._max_body_bytes:
            received = 0  # what is declared may be less than what comes

        async def receive_counting() -> Message:
            nonlocal received
            if received <= self._max_body_bytes:
                message = await receive()
                received += len(message.get("body", b""))
            if received > self._max_body_bytes:
                raise BodyTooLarge(
                    f"the body is larger than {self._max_body_bytes} bytes; send less"
                )
            return message

        return receive_counting

    def _count(self, scope: Scope, duration_s: float) -> None:
        # Unknown paths share one label: a client must not be able to grow the metrics page.
        route = getattr(scope.get("route"), "path", "other")
        state = scope["state"]
        self._metrics.request(state["model"], route, int(state["code"]), duration_s)
        if state["error_code"]:
            self._metrics.rejected(state["model"], state["error_code"])
