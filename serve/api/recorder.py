"""What is told of a request that has ended: metrics, the access log, its span."""

import logging
import time
from http import HTTPStatus
from typing import Any

from serve.access.keys import Scope
from serve.api.context import AppContext
from serve.api.request import Request
from serve.errors import Cancelled, DeadlineExceeded
from serve.logs import ACCESS_LOG

access_log = logging.getLogger(ACCESS_LOG)


class Recorder:
    """Counts, logs and traces requests."""

    def __init__(self, context: AppContext) -> None:
        """Take where requests are counted, whether each has a log line, and what makes spans."""
        self.metrics, self.logs_access = context.metrics, context.access_log
        self._tracing = context.tracing

    def begin(self, request: Request, route: str, scope: Scope | None) -> None:
        """Note the route of a request, and begin its span if it asks for a classification."""
        request.route = route
        if self._tracing and scope == "classify":
            request.span = self._tracing.begin(request.method, request.route, request.headers)

    def publish(self, request: Request) -> None:
        """Count a request that has ended, log it, and end its span."""
        # How long the client takes for the answer is no time of the server's.
        ended_s = request.answered_s or time.monotonic()
        duration_s = ended_s - request.arrived_s
        body = request.body
        num_bytes = min(body.num_bytes, body.max_bytes) if body else request.num_bytes
        if not request.queued:  # else its rows are paid for, though no answer may be taken
            request.client.refuse(request.code, num_bytes)
        served_s = _served_s(request, ended_s)
        self.metrics.request(request.model, request.route, request.code, served_s)
        _count_in_arm(request, served_s)
        if request.error_code:
            self.metrics.rejected(request.model, request.error_code)
        self.log(request, duration_s)
        if self._tracing and request.span:
            self._tracing.end(request.span, request.code, request.error_code)

    def log(self, request: Request, duration_s: float) -> None:
        """Write the line of a request, if every request has one."""
        if self.logs_access:
            access_log.info("request", extra={"fields": _access_fields(request, duration_s)})


def _count_in_arm(request: Request, served_s: float | None) -> None:
    """Count a request that is in an arm of a rollout."""
    arm, judged = request.arm, request.judged
    if arm is None:
        return
    if judged is None:  # it was refused before its texts were counted
        judged = arm.takes(request.client.identity, 1)
    if not judged:
        arm.uncounted()
    else:
        status = DeadlineExceeded.status if request.cut_short else request.code
        arm.ended(status, request.error_code, served_s)


def _served_s(request: Request, now_s: float) -> float | None:
    """Return how long the server has taken for a request; None if it has only refused it.

    Slow uploads and refusals are the client's doing. A client that leaves has waited all the same.
    """
    if request.code == Cancelled.status:
        return now_s - request.read_s if request.read_s else None
    if HTTPStatus.BAD_REQUEST <= request.code < HTTPStatus.INTERNAL_SERVER_ERROR:
        return None
    return now_s - (request.read_s or request.arrived_s)


def _access_fields(request: Request, duration_s: float) -> dict[str, Any]:
    """Return what the line of a request says; never what the request says."""
    return {
        **request.log_fields,
        "method": request.method,
        "route": request.route,
        "status": request.code,
        "error": request.error_code,
        "model": request.model,
        "rows": request.rows,
        "layers": request.layers,
        "ms": round(duration_s * 1e3, 3),
    }
