"""One request, by whatever protocol it came: what it says in its head, and what is noted of it."""

import logging
import random
import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from serve.access.gate import Client
from serve.api.limits import BodyLimit
from serve.errors import Cancelled
from serve.logs import ACCESS_LOG
from serve.metrics.metrics import Metrics
from serve.policy.live import Live, LivePolicy
from serve.rollout.traffic import ArmTraffic

access_log = logging.getLogger(ACCESS_LOG)

REQUEST_ID: Final = "x-request-id"
# Headers of answers: which bundle has classified, and in which replica.
BUNDLE: Final = "x-offramp-bundle"
REPLICA: Final = "x-offramp-replica"
# And which policy, while a rollout runs.
ARM: Final = "x-offramp-arm"
MAX_REQUEST_ID_CHARS: Final = 128

# Unknown paths share one route, so that clients cannot add series to the metrics.
_OTHER: Final = "other"
_KEY: Final = "offramp.record"
_UNKNOWN: Final = Client("")
# Of version 00; later ones may add to it.
_TRACEPARENT: Final = re.compile(
    r"(?:00(?=.{53}$)|(?!00|ff)[0-9a-f]{2})"
    r"-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?"
)


class RequestHeaders(dict[str, str]):
    """Headers by names in lower case; of a name that comes more than once, the first.

    Attributes:
        repeated: the names that come more than once.
    """

    def __init__(self, given: Iterable[tuple[str, str]]) -> None:
        """Take names in lower case and values, in the order in which they came."""
        listed = [*given]
        super().__init__(reversed(listed))
        self.repeated: frozenset[str] = frozenset()
        if len(self) < len(listed):
            names = Counter(name for name, _ in listed)
            self.repeated = frozenset(name for name, times in names.items() if times > 1)

    @classmethod
    def of(cls, scope: Mapping[str, Any]) -> "RequestHeaders":
        """Return the headers of an ASGI scope."""
        raw = scope["headers"]
        return cls([(name.decode("latin-1"), text.decode("latin-1")) for name, text in raw])


@dataclass(slots=True)
class RequestRecord:
    """One request.

    Attributes:
        headers: of the request, or the metadata of a call.
        method: of HTTP, or `GRPC`.
        query: what follows the `?` of the request's target.
        request_id: the client's, or made up.
        arrived_s: on the clock of deadlines.
        read_s: when its body had come; 0 until then.
        answered_s: when the whole answer was there to be sent; 0 before.
        route: the path that the app has for it, with names in the place of values.
        params: the values of those names.
        client: who asks, once that is known.
        body: reads the body; for HTTP only.
        num_bytes: of the message; for gRPC only.
        asked: its body, if that asks for a change.
        changed: whether the change was made.
        model: the name of the model that it is for, once that is known.
        bundle: the version of the bundle that classifies, once that is known.
        followed: the policy of each model that was looked at, the same for the whole request.
        arm: counts the requests of the rollout's arm that it is in; None without a rollout.
        queued: whether a model has taken its rows.
        rows: that were answered.
        layers: that were run for them.
        code: the status of the answer.
        error_code: of the error that it got.
        why: its message.
        span_trace_id: of the span that is made of it; empty for none.
        started: whether the answer has begun.
    """

    headers: RequestHeaders
    method: str
    query: str = ""
    request_id: str = field(init=False)
    arrived_s: float = field(default_factory=time.monotonic)
    read_s: float = 0.0
    answered_s: float = 0.0
    route: str = _OTHER
    params: Mapping[str, str] = field(default_factory=dict)
    client: Client = _UNKNOWN
    body: BodyLimit | None = None
    num_bytes: int = 0
    asked: Any = None
    changed: bool = False
    model: str = ""
    bundle: str = ""
    followed: dict[LivePolicy, Live] = field(default_factory=dict)
    arm: ArmTraffic | None = None
    queued: bool = False
    rows: int = 0
    layers: int = 0
    code: int = HTTPStatus.INTERNAL_SERVER_ERROR.value
    error_code: str = ""
    why: str = ""
    span_trace_id: str = ""
    started: bool = False

    def __post_init__(self) -> None:
        given = self.headers.get(REQUEST_ID, "")[:MAX_REQUEST_ID_CHARS]
        self.request_id = given or new_request_id()

    @property
    def trace_id(self) -> str:
        """The id of the trace that the request is part of; empty for none."""
        return self.span_trace_id or trace_id_of(self.headers)

    def put_into(self, scope: MutableMapping[str, Any]) -> None:
        """Let the routes of this request find the record."""
        scope[_KEY] = self


def new_request_id() -> str:
    """Return an id; it need not be hard to guess."""
    return f"{random.getrandbits(128):032x}"


def trace_id_of(headers: RequestHeaders) -> str:
    """Return the trace id of the `traceparent` header (W3C Trace Context); empty for none."""
    given = headers.get("traceparent")
    if given is None or "traceparent" in headers.repeated:
        return ""
    found = _TRACEPARENT.fullmatch(given)
    return found[1] if found else ""


def record_of(scope: Mapping[str, Any]) -> RequestRecord:
    """Return the record of an ASGI scope."""
    record: RequestRecord = scope[_KEY]
    return record


class Recorder(NamedTuple):
    """Publishes requests that have ended.

    Attributes:
        metrics: of this process.
        logs_access: whether every request has a log line.
    """

    metrics: Metrics
    logs_access: bool

    def publish(self, record: RequestRecord) -> None:
        """Count a request, and log it."""
        # How long the client takes for the answer is no time of the server's.
        ended_s = record.answered_s or time.monotonic()
        duration_s = ended_s - record.arrived_s
        body = record.body
        num_bytes = min(body.num_bytes, body.max_bytes) if body else record.num_bytes
        if not record.queued:  # else its rows are paid for, though no answer may be taken
            record.client.refuse(record.code, num_bytes)
        served_s = _served_s(record, ended_s)
        self.metrics.request(record.model, record.route, record.code, served_s)
        if record.arm:
            record.arm.ended(record.code, record.error_code, served_s)
        if record.error_code:
            self.metrics.rejected(record.model, record.error_code)
        self.log(record, duration_s)

    def log(self, record: RequestRecord, duration_s: float) -> None:
        """Write the line of a request, if every request has one."""
        if self.logs_access:
            access_log.info("request", extra={"fields": _access_fields(record, duration_s)})


def who(record: RequestRecord) -> dict[str, Any]:
    """Return what tells a request and its sender from others, for lines about it."""
    return {
        "id": record.request_id,
        "trace_id": record.trace_id,
        "key": record.client.name,
        "client": record.client.address,
    }


def _served_s(record: RequestRecord, now_s: float) -> float | None:
    """Return how long the server has taken for a request; None if it has only refused it.

    Slow uploads and refusals are the client's doing. A client that leaves has waited all the same.
    """
    if record.code == Cancelled.status:
        return now_s - record.read_s if record.read_s else None
    if HTTPStatus.BAD_REQUEST <= record.code < HTTPStatus.INTERNAL_SERVER_ERROR:
        return None
    return now_s - (record.read_s or record.arrived_s)


def _access_fields(record: RequestRecord, duration_s: float) -> dict[str, Any]:
    """Return what the line of a request says; never what the request says."""
    return {
        **who(record),
        "method": record.method,
        "route": record.route,
        "status": record.code,
        "error": record.error_code,
        "model": record.model,
        "rows": record.rows,
        "layers": record.layers,
        "ms": round(duration_s * 1e3, 3),
    }
