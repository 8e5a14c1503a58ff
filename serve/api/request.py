"""One request, by HTTP or gRPC: what its head says, its body, and what becomes of it."""

import asyncio
import logging
import random
import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from starlette.types import Receive

from serve.access.gate import Client
from serve.access.held_bytes import FREE_BYTES, Held, HeldBytes
from serve.errors import BodyTooLarge, Cancelled, OfframpError, Overloaded
from serve.http.connection import MAX_DISCARDED_BYTES
from serve.logs import fields
from serve.policy.entry import ANONYMOUS
from serve.policy.live import Live, LivePolicy
from serve.rollout.traffic import ArmTraffic

if TYPE_CHECKING:
    from opentelemetry.trace import Span

log = logging.getLogger(__name__)

# The rest of a body that is refused is read and dropped for so long: some clients read the answer
# only after they have sent all.
DISCARD_S: Final = 5.0
# Headers of answers: the request's id, and which bundle, replica and rollout arm has answered.
REQUEST_ID: Final = "x-request-id"
BUNDLE: Final = "x-offramp-bundle"
REPLICA: Final = "x-offramp-replica"
ARM: Final = "x-offramp-arm"
MAX_REQUEST_ID_CHARS: Final = 128

_INTERNAL: Final = OfframpError("internal error; the server's log has the cause")
_UNKNOWN: Final = Client("")
# A header of version 00; later versions may add fields.
_TRACEPARENT: Final = re.compile(
    r"(?:00(?=.{53}$)|(?!00|ff)[0-9a-f]{2})"
    r"-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?"
)


class Headers(dict[str, str]):
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
    def of(cls, scope: Mapping[str, Any]) -> "Headers":
        """Return the headers of an ASGI scope."""
        raw = scope["headers"]
        return cls([(name.decode("latin-1"), text.decode("latin-1")) for name, text in raw])


class BodyLimit:
    """Reads the body of one request, and counts it until the request has ended.

    Attributes:
        refused: whether the body is refused: it is larger than allowed, by its declared size or
            by its bytes, or too many bodies are held.
        client: the identity of the sender, once that is known.
        max_bytes: size of the largest body that is taken.
        declared: the body's declared size; 0 if there is none.
        num_bytes: what has been read of it.
    """

    def __init__(
        self, receive: Receive, headers: Mapping[str, str], max_bytes: int, bodies: HeldBytes
    ) -> None:
        """Check the declared size."""
        declared = headers.get("content-length", "").lstrip("0")
        if not declared.isdecimal():
            declared = "0"
        # Python refuses to read thousands of digits.
        self.refused = len(declared) > len(str(max_bytes)) or int(declared) > max_bytes
        self.declared = 0 if self.refused else int(declared)
        self._receive = receive
        self.max_bytes = max_bytes
        self._bodies, self.client = bodies, ""
        self._held: Held | None = None
        self.num_bytes = 0
        self._more_body = True

    async def read(self) -> bytes:
        """Return the body as it came.

        Raises:
            BodyTooLarge: it is too large.
            Overloaded: too many bodies are held, of all or of this client.
            Cancelled: the client has left before sending it whole.
        """
        chunks: list[bytes] = []
        while self._more_body:
            if not self.refused:
                chunks.append(await self._next())
                self.refused = self.num_bytes > self.max_bytes
            if self.refused:
                raise BodyTooLarge(f"the body is larger than {self.max_bytes} bytes; send less")
            try:
                self._hold()
            except Overloaded:
                self.refused = True
                self.release()
                raise
        return b"".join(chunks)

    def hold_unpacked(self, num_bytes: int) -> None:
        """Count a compressed body by its unpacked size.

        Raises:
            BodyTooLarge: it is too large.
            Overloaded: too many bodies are held.
        """
        self.num_bytes = max(self.num_bytes, num_bytes)
        if num_bytes > self.max_bytes:
            raise BodyTooLarge(
                f"the body is larger than {self.max_bytes} bytes when unpacked; send less"
            )
        self._hold()

    def release(self) -> None:
        """Count the body out of those that are held; to be called when the request has ended."""
        if self._held:
            self._bodies.release(self._held)

    async def discard(self) -> None:
        """Read the rest of the body and drop it, within `MAX_DISCARDED_BYTES` and `DISCARD_S`."""
        with suppress(TimeoutError, Cancelled):
            async with asyncio.timeout(DISCARD_S):
                end = self.num_bytes + MAX_DISCARDED_BYTES
                while self._more_body and self.num_bytes < end:
                    await self._next()

    def _hold(self) -> None:
        # Room for the whole declared body is taken at once. If bodies that arrive together took
        # it bit by bit, none of them might find enough.
        num_bytes = max(self.num_bytes, self.declared)
        if self._held:
            self._bodies.grow(self._held, num_bytes)
        elif num_bytes > FREE_BYTES:
            self._held = self._bodies.hold(self.client, num_bytes)

    async def _next(self) -> bytes:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise Cancelled("the client has left")
        part: bytes = message.get("body", b"")
        self.num_bytes += len(part)
        self._more_body = message.get("more_body", False)
        return part


@dataclass(slots=True)
class Request:
    """One request, from its head to its line in the access log.

    Attributes:
        headers: the request's headers, or the metadata of a call.
        method: the HTTP method, or `GRPC`.
        query: what follows the `?` of the request's target.
        root_path: the prefix of the path that a proxy has added.
        request_id: the client's, or made up.
        arrived_s: on the clock of deadlines.
        read_s: when its body had come; 0 until then.
        answered_s: when the whole answer was there to be sent; 0 before.
        route: the path in the table of routes, with names in the place of values.
        params: the values of those names.
        client: who asks, once that is known.
        body: reads the body; for HTTP only.
        num_bytes: size of the message; for gRPC only.
        asked: the body, if that asks for a change.
        changed: whether the change was made.
        model: the name of the model that it is for, once that is known.
        bundle: the version of the bundle that classifies, once that is known.
        followed: the policy of each model that was looked at, the same for the whole request.
        arm: counts the requests of the rollout's arm that it is in; None without a rollout.
        judged: whether it counts in the verdict on its arm; None until that is known.
        cut_short: whether its own deadline has cut an answer short.
        queued: whether a model has taken its rows.
        rows: number of rows that were answered.
        layers: number of layers that were run for them.
        code: the status of the answer.
        error_code: code of the error that the request got.
        why: message of that error.
        span: the span of the request's trace; None without one.
        started: whether the answer has begun.
    """

    headers: Headers
    method: str
    query: str = ""
    root_path: str = ""
    request_id: str = field(init=False)
    arrived_s: float = field(default_factory=time.monotonic)
    read_s: float = 0.0
    answered_s: float = 0.0
    route: str = ""
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
    judged: bool | None = None
    cut_short: bool = False
    queued: bool = False
    rows: int = 0
    layers: int = 0
    code: int = HTTPStatus.INTERNAL_SERVER_ERROR.value
    error_code: str = ""
    why: str = ""
    span: "Span | None" = None
    started: bool = False

    def __post_init__(self) -> None:
        given = self.headers.get(REQUEST_ID, "")[:MAX_REQUEST_ID_CHARS]
        self.request_id = given or new_request_id()

    def count_in_no_verdict(self) -> None:
        """Note that what becomes of the request says nothing of a rollout's candidate."""
        self.judged = False

    @property
    def trace_id(self) -> str:
        """The id of the trace that the request is part of; empty for none."""
        if self.span and self.span.get_span_context().is_valid:
            return f"{self.span.get_span_context().trace_id:032x}"
        given = self.headers.get("traceparent")
        if given is None or "traceparent" in self.headers.repeated:
            return ""
        found = _TRACEPARENT.fullmatch(given)
        return found[1] if found else ""

    @property
    def by(self) -> str:
        """What the history of policies and models calls the client."""
        return self.client.name or ANONYMOUS

    @property
    def log_fields(self) -> dict[str, Any]:
        """What tells the request and its sender from others, in log lines."""
        return {
            "id": self.request_id,
            "trace_id": self.trace_id,
            "key": self.client.name,
            "client": self.client.address,
        }


def new_request_id() -> str:
    """Return an id; it need not be hard to guess."""
    return f"{random.getrandbits(128):032x}"


def expected(error: BaseException, request: Request) -> OfframpError:
    """Return the error that the client gets, and note it; raise where the answer has begun."""
    refusal = error if isinstance(error, OfframpError) else _INTERNAL
    if refusal.status == OfframpError.status:
        cause = None if refusal is error else error
        told = "request %s failed: %s", request.request_id, refusal.code
        log.error(*told, extra=fields(**request.log_fields), exc_info=cause)
    request.error_code, request.why = refusal.code, str(refusal)
    if request.started:
        raise error  # too late for another answer: the HTTP server closes the connection
    return refusal
