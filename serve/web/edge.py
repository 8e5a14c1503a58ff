"""The outermost layer: limits the body, wants JSON, counts requests, passes on request ids."""

import logging
import time
from http import HTTPStatus
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve.errors import BodyTooLarge, OfframpError, UnsupportedMediaType
from serve.metrics import Metrics
from serve.web.problems import problem_response

log = logging.getLogger(__name__)

REQUEST_ID = "x-request-id"
MAX_REQUEST_ID_CHARS = 128

INTERNAL = OfframpError("internal error; the server's log has the cause")


class Edge:
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
        headers = Headers(scope=scope)
        request_id = headers.get(REQUEST_ID, "")[:MAX_REQUEST_ID_CHARS] or uuid4().hex
        state = scope.setdefault("state", {})
        state.update(
            arrived_s=arrived_s, model="", code=HTTPStatus.INTERNAL_SERVER_ERROR, started=False
        )

        async def send_noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                state.update(code=message["status"], started=True)
                MutableHeaders(scope=message).setdefault(REQUEST_ID, request_id)
            await send(message)

        try:
            self._check(scope["method"], headers)
            await self._app(scope, self._limited(receive), send_noting)
        except OfframpError as error:
            await problem_response(error)(scope, receive, send_noting)
        except Exception:
            log.exception("request %s failed", request_id)
            if state["started"]:
                raise  # too late for another answer: the server cuts the connection
            await problem_response(INTERNAL)(scope, receive, send_noting)
        finally:
            self._count(scope, time.monotonic() - arrived_s)

    def _check(self, method: str, headers: Headers) -> None:
        if method not in ("POST", "PUT", "PATCH"):
            return
        media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
        if media_type != "application/json":
            raise UnsupportedMediaType("send JSON, with the header Content-Type: application/json")
        declared = headers.get("content-length", "0")
        if declared.isdecimal() and int(declared) > self._max_body_bytes:
            raise self._too_large()

    def _limited(self, receive: Receive) -> Receive:
        received = 0

        async def receive_counting() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._max_body_bytes:
                raise self._too_large()
            return message

        return receive_counting

    def _too_large(self) -> BodyTooLarge:
        return BodyTooLarge(f"the body is larger than {self._max_body_bytes} bytes; send less")

    def _count(self, scope: Scope, duration_s: float) -> None:
        # Unknown paths share one label: a client must not be able to grow the metrics page.
        route = getattr(scope.get("route"), "path", "other")
        state = scope["state"]
        self._metrics.request(state["model"], route, int(state["code"]), duration_s)
