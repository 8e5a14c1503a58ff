"""What happens to a model's policy, as server-sent events."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from http import HTTPStatus
from typing import Any, Final

from pydantic_core import to_json
from starlette.types import Send

from serve.api.context import AppContext
from serve.api.request import Request
from serve.api.route import Route
from serve.api.routes.models import UNKNOWN_MODEL, named_model
from serve.api.routes.policy import listed
from serve.api.routes.quality import QualityReport
from serve.classifier.classifier import Classifier
from serve.errors import InvalidRequest, OfframpError, Overloaded, RateLimited
from serve.policy.live import LivePolicy

MAX_STREAMS: Final = 64
MAX_OF_CLIENT: Final = 16
_RETRY_AFTER_S: Final = 15
_LOOK_EVERY_S: Final = 0.5
# A line that says nothing shows that the connection stands, and the key is looked up again.
_SILENT_S: Final = 15.0
_VERSION: Final = re.compile(r"0|[1-9][0-9]{0,17}")
_HEADERS: Final = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # nginx would keep events back
]


async def policy_events(context: AppContext, request: Request) -> "EventStream":
    """Send what happens to the policy, as server-sent events, from the live version on.

    `policy` and `guardrail` have a version as in the history. Their `id` in the header
    `Last-Event-ID` continues a stream after it. `quality` has what `/v1/models/{model}/quality`
    answers, when the state of a promise has changed.
    """
    classifier = named_model(context, request)
    return EventStream(context, classifier, request, _seen_in(request, classifier.policy))


_CONTENT: Final = {"text/event-stream": {"schema": {"type": "string"}}}
_STREAM: Final = {200: {"description": "Events, until one side ends.", "content": _CONTENT}}
_ERRORS: Final = {
    **UNKNOWN_MODEL,
    422: "Last-Event-ID is no version.",
    429: "Too many streams are open already.",
}
_PATH: Final = "/v1/models/{model}/policy/events"
_MORE: Final = {"responses": _STREAM}
ROUTES: Final = (
    Route("GET", _PATH, policy_events, "admin", tag="policy", errors=_ERRORS, more=_MORE),
)


class EventStream:
    """Sends events until the client leaves, the server stops, or the model is served no more."""

    def __init__(
        self, context: AppContext, classifier: Classifier, request: Request, seen: int
    ) -> None:
        """Take the version after which the client goes on."""
        self._context, self._request, self._classifier = context, request, classifier
        self._seen, self._told = seen, dict[Any, str]()

    async def send(self, send: Send) -> None:
        """Send them.

        Raises:
            RateLimited: the client has as many streams as one may have.
            Overloaded: as many streams are open as may.
        """
        streams, client = self._context.event_streams, self._request.client.identity
        if streams.count(client) >= MAX_OF_CLIENT:
            raise RateLimited(
                f"{MAX_OF_CLIENT} streams of events are open to you; close one", _RETRY_AFTER_S
            )
        if len(streams) >= MAX_STREAMS:
            raise Overloaded(f"{MAX_STREAMS} streams of events are open; try again", _RETRY_AFTER_S)
        streams.append(client)
        try:
            await send(
                {"type": "http.response.start", "status": HTTPStatus.OK, "headers": [*_HEADERS]}
            )
            if self._request.method != "HEAD":
                async for part in self._parts():
                    # Returns when the client has taken it, so nothing piles up.
                    await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body"})
        finally:
            streams.remove(client)

    async def _parts(self) -> AsyncIterator[bytes]:
        clock = asyncio.get_running_loop().time
        sent_s = clock()
        while not self._context.connections.stopping and self._is_served():
            for event in (*self._policies(), *self._quality()):
                yield event
                sent_s = clock()
            if clock() > sent_s + _SILENT_S:
                if not self._may_go_on():
                    return
                yield b":\n\n"
                sent_s = clock()
            await asyncio.sleep(_LOOK_EVERY_S)

    def _is_served(self) -> bool:
        """Tell whether the model is still the one of its name; clients ask again for another."""
        return self._context.catalog.found.get(self._classifier.name) is self._classifier

    def _may_go_on(self) -> bool:
        """Tell whether the key is still one that may see this."""
        access, request = self._context.access, self._request
        try:
            access.gate.check(access.identify(request.headers, request.client.address), "admin")
        except OfframpError:
            return False
        return True

    def _policies(self) -> Iterator[bytes]:
        """Yield the versions that this replica has come to apply since the last call."""
        live = self._classifier.policy
        current = live.current.version
        for kept in live.history:
            if self._seen < kept.entry.version <= current:
                shown = listed(kept)
                kind = "guardrail" if shown.action == "guardrail" else "policy"
                data = {"model": self._classifier.name, **shown.model_dump(exclude_none=True)}
                yield _event(kind, data, shown.version)
        self._seen = max(self._seen, current)

    def _quality(self) -> Iterator[bytes]:
        """Yield what audits say, if the state of a promise has changed since the last call."""
        judged = self._classifier.guardrail.latest()
        states: dict[Any, str] = {key: quality.state for key, quality in judged.profiles.items()}
        if states != self._told:
            self._told = states
            yield _event("quality", QualityReport.of(self._classifier.name, judged))


def _event(kind: str, data: Any, version: int | None = None) -> bytes:
    """Return an event. JSON has no line break, so that it is one line of data.

    A client may go on after an event with a version.
    """
    number = b"" if version is None else b"id: %d\n" % version
    return b"event: %b\n%bdata: %b\n\n" % (kind.encode(), number, to_json(data))


def _seen_in(request: Request, live: LivePolicy) -> int:
    """Return the version after which a client goes on; one that begins gets the live one."""
    given, begin = request.headers.get("last-event-id"), live.current.version - 1
    if given is None:
        return begin
    if not _VERSION.fullmatch(given):
        raise InvalidRequest(f"Last-Event-ID: must be a version such as 3, not {given[:40]}")
    # A history that was lost begins anew, and so does the client.
    return int(given) if int(given) <= live.history[-1].entry.version else begin
