"""What happens to a model's policy, as server-sent events."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from pydantic_core import to_json
from starlette.types import Send

from serve.api.context import AppContext
from serve.api.request import Request
from serve.api.route import Route
from serve.api.routes.models import named_model
from serve.api.routes.policy_history import listed
from serve.api.schemas.error import ErrorBody
from serve.api.schemas.quality import QualityReport
from serve.classifier.classifier import Classifier
from serve.errors import InvalidRequest, OfframpError, Overloaded
from serve.policy.live import LivePolicy

MAX_STREAMS: Final = 64
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


class Event(NamedTuple):
    """A server-sent event.

    Attributes:
        kind: its name.
        data: becomes JSON.
        version: of the policy, for events after which a client may go on.
    """

    kind: str
    data: Any
    version: int | None = None

    def encoded(self) -> bytes:
        """Return what is sent. JSON has no line break, so that it is one line of data."""
        number = b"" if self.version is None else b"id: %d\n" % self.version
        return b"event: %b\n%bdata: %b\n\n" % (self.kind.encode(), number, to_json(self.data))


# Asked again and again for each stream: returns what has happened since.
Source = Callable[[], AsyncIterator[Event]]


async def policy_events(context: AppContext, request: Request) -> "EventStream":
    """Send what happens to the policy, as server-sent events, from the live version on.

    `policy` and `guardrail` have a version as in the history. Their `id` in the header
    `Last-Event-ID` continues a stream after it. `quality` has what `/v1/models/{model}/quality`
    answers, when the state of a promise has changed.
    """
    classifier = named_model(context, request)
    seen = _seen_in(request, classifier.policy)
    sources = _Policies(classifier, seen).news, _Quality(classifier).news
    return EventStream(context, classifier, request, sources)


_CONTENT: Final = {"text/event-stream": {"schema": {"type": "string"}}}
_DOCUMENTED: Final = {
    "tags": ["policy"],
    "responses": {
        200: {"description": "Events, until one side ends.", "content": _CONTENT},
        404: {"model": ErrorBody, "description": "No such model."},
        422: {"model": ErrorBody, "description": "Last-Event-ID is no version."},
        429: {"model": ErrorBody, "description": "Too many streams are open already."},
        503: {"model": ErrorBody, "description": "The store of policies does not answer."},
    },
}
_PATH: Final = "/v1/models/{model}/policy/events"
ROUTES: Final = (Route("GET", _PATH, policy_events, "admin", documented=_DOCUMENTED),)


class EventStream:
    """Sends events until the client leaves, the server stops, or the model is served no more."""

    def __init__(
        self,
        context: AppContext,
        classifier: Classifier,
        request: Request,
        sources: tuple[Source, ...],
    ) -> None:
        self._context, self._request, self._classifier = context, request, classifier
        self._sources, self._streams = sources, context.event_streams

    async def send(self, send: Send) -> None:
        """Send them.

        Raises:
            Overloaded: as many streams are open as may.
        """
        if len(self._streams) >= MAX_STREAMS:
            raise Overloaded(f"{MAX_STREAMS} streams of events are open; try again", _RETRY_AFTER_S)
        task = asyncio.current_task()
        self._streams.add(task)
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
            self._streams.discard(task)

    async def _parts(self) -> AsyncIterator[bytes]:
        clock = asyncio.get_running_loop().time
        sent_s = clock()
        while not self._context.connections.stopping and self._is_served():
            for source in self._sources:
                async for event in source():
                    yield event.encoded()
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


class _Policies:
    """The versions of one model's policy that a client has not seen."""

    def __init__(self, classifier: Classifier, seen: int | None) -> None:
        self._seen = seen
        self._name, self._live = classifier.name, classifier.policy

    async def news(self) -> AsyncIterator[Event]:
        """Yield the versions that this replica has come to apply since the last call."""
        current = self._live.current.version
        if self._seen is not None and self._seen >= current:
            return
        seen = current - 1 if self._seen is None else self._seen
        for kept in self._live.history:
            if seen < kept.entry.version <= current:
                shown = listed(kept)
                kind = "guardrail" if shown.action == "guardrail" else "policy"
                data = {"model": self._name, **shown.model_dump(mode="json", exclude_none=True)}
                yield Event(kind, data, shown.version)
        self._seen = current


class _Quality:
    """What audits say of one model's promises, whenever the state of one changes."""

    def __init__(self, classifier: Classifier) -> None:
        self._classifier = classifier
        self._told: dict[Any, str] = {}

    async def news(self) -> AsyncIterator[Event]:
        """Yield what audits say, if it has changed since the last call."""
        judged = self._classifier.guardrail.latest()
        states = {key: quality.state for key, quality in judged.profiles.items()}
        if states != self._told:
            self._told = dict(states)
            yield Event("quality", QualityReport.of(self._classifier.name, judged))


def _seen_in(request: Request, live: LivePolicy) -> int | None:
    """Return the version after which a client goes on; None for one that begins."""
    given = request.headers.get("last-event-id")
    if given is None:
        return None
    if not _VERSION.fullmatch(given):
        raise InvalidRequest(f"Last-Event-ID: must be a version such as 3, not {given[:40]}")
    # A history that was lost begins anew, and so does the client.
    return int(given) if int(given) <= live.history[-1].entry.version else None
