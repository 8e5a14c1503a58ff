"""What is noted of every request, for metrics and log, by whatever protocol it came."""

import logging
import time
from http import HTTPStatus
from typing import Any, Final, NamedTuple
from uuid import uuid4

from serve.logs import ACCESS_LOG
from serve.metrics.collectors import Metrics

access_log = logging.getLogger(ACCESS_LOG)

REQUEST_ID: Final = "x-request-id"
MAX_REQUEST_ID_CHARS: Final = 128

# Routes set `model`, `rows` and `layers`, what handles an error `error_code`; the rest is set by
# what is around them.
_INITIAL: Final = {
    "model": "",
    "rows": 0,
    "layers": 0,
    "client": None,
    "error_code": "",
    "started": False,
    "code": HTTPStatus.INTERNAL_SERVER_ERROR,
}


def new_record(given_id: str) -> dict[str, Any]:
    """Return the state of a request that has just arrived.

    Args:
        given_id: the id that came with the request, or an empty text.
    """
    request_id = given_id[:MAX_REQUEST_ID_CHARS] or uuid4().hex
    return {**_INITIAL, "arrived_s": time.monotonic(), "request_id": request_id}


class Recorder(NamedTuple):
    """Publishes requests that have ended.

    Attributes:
        metrics: of this process.
        logs_access: whether every request has a log line.
    """

    metrics: Metrics
    logs_access: bool

    def publish(self, state: dict[str, Any], method: str, route: str) -> None:
        """Count a request, and log it."""
        duration_s = time.monotonic() - state["arrived_s"]
        self.metrics.request(state["model"], route, int(state["code"]), duration_s)
        if state["error_code"]:
            self.metrics.rejected(state["model"], state["error_code"])
        if self.logs_access:
            fields = _access_fields(state, method, route, duration_s)
            access_log.info("request", extra={"fields": fields})


def _access_fields(
    state: dict[str, Any], method: str, route: str, duration_s: float
) -> dict[str, Any]:
    """Return what the line of a request says; never what the request says."""
    client = state["client"]
    return {
        "id": state["request_id"],
        "key": client.name if client else "",
        "method": method,
        "route": route,
        "status": int(state["code"]),
        "error": state["error_code"],
        "model": state["model"],
        "rows": state["rows"],
        "layers": state["layers"],
        "ms": round(duration_s * 1e3, 3),
    }
