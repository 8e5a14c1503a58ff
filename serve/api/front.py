"""The outermost layer: record, access, body size, errors, metrics, log lines."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Receive, Scope, Send

from serve.access.gate import Needed
from serve.api.context import AppContext
from serve.api.dialect import Dialect, dialect_of
from serve.api.endpoint import Endpoint
from serve.api.errors import error_response, expected
from serve.api.limits import BodyLimit
from serve.api.record import Recorder, RequestHeaders, RequestRecord
from serve.api.scopes import is_probe, required_scope
from serve.api.sent_answer import OwnHeaders, SentAnswer
from serve.api.trail import note_refusal
from serve.classifier.catalog import Catalog
from serve.errors import STOPS, Cancelled


class _Target(NamedTuple):
    """What a request is for.

    Attributes:
        dialect: that answers, also with errors.
        scope: that a key needs, or `any`; None where no key is needed.
        probe: whether health probes ask it.
        app: answers it.
        route: the path that the app has for it, as far as that was looked up.
        params: names of the endpoint's path and their values.
    """

    dialect: Dialect
    scope: Needed | None
    probe: bool
    app: ASGIApp
    route: str = ""
    params: Mapping[str, str] = MappingProxyType({})


class Front:
    """ASGI app around FastAPI's, which it passes by for requests to the served models' endpoints.

    What is known of a path before any request comes is looked up. Where requests are traced,
    FastAPI answers all of them, because it makes their spans.
    """

    def __init__(self, app: ASGIApp, context: AppContext, routes: Sequence[BaseRoute]) -> None:
        """Take FastAPI's layers, what they work with, and the routes that there are."""
        self._routes = routes
        limits = context.limits
        self._catalog = context.catalog
        self._app, self._dialects, self._guard = app, context.dialects, context.guard
        self._recorder = Recorder(context.metrics, context.access_log)
        self._max_body_bytes = limits.max_body_bytes
        self._bodies, self._answers = context.bodies, context.answers
        self._own_headers = OwnHeaders(context)
        self._targets: dict[tuple[str, str], _Target] = {}
        apps = [(d, e, e.app(context)) for d in context.dialects for e in d.endpoints]

        def look_up_served() -> None:
            self._targets = _targets(apps, context.catalog)

        if not context.tracing:
            context.catalog.watch(look_up_served)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        method = scope["method"]
        if method == "HEAD":  # the HTTP server leaves out the body of the answer
            scope = {**scope, "method": "GET"}
        headers, path = RequestHeaders.of(scope), route_path(scope)
        target = self._targets.get((scope["method"], path)) or self._look_up(scope, path)
        record = RequestRecord(headers, method, scope["query_string"].decode("latin-1"))
        body = BodyLimit(receive, headers, self._max_body_bytes, self._bodies)
        record.body, record.params = body, target.params
        record.put_into(scope)
        answer = SentAnswer(record, self._answers, self._own_headers, send)
        try:
            self._guard.check(scope, record, target.scope, target.probe)
            body.client = record.client.identity
            with record.client.in_flight():
                self._answers.check(record.client.identity)
                await target.app(scope, body.receive, answer.send)
        except STOPS:  # the client has left
            record.code = Cancelled.status
            raise
        except BaseException as error:
            response = error_response(expected(error, record), target.dialect)
            await response(scope, receive, answer.send)
        finally:
            body.release()
            answer.release()
            self._publish(record, target, scope)

    def _publish(self, record: RequestRecord, target: _Target, scope: Scope) -> None:
        record.route = target.route or _route_of(scope) or record.route
        if target.scope == "admin":
            note_refusal(record, route_path(scope), self._catalog)
        self._recorder.publish(record)

    def _look_up(self, scope: Scope, path: str) -> _Target:
        needed: Needed | None = required_scope(
            scope["method"], path, self._guard.open_metrics, self._dialects
        )
        route = ""
        if needed:
            found = (each for each in self._routes if each.matches(scope)[0] is Match.FULL)
            route = getattr(next(found, None), "path", "")
            if not route:
                needed = "any"  # so that the answer, 404 or 405, tells strangers nothing
        dialect = dialect_of(path, self._dialects)
        return _Target(dialect, needed, is_probe(path, self._dialects), self._app, route)


def _targets(
    apps: Iterable[tuple[Dialect, Endpoint, ASGIApp]], catalog: Catalog
) -> dict[tuple[str, str], _Target]:
    """Return the endpoints by method and path, of which no part is a name but the model's."""
    found: dict[tuple[str, str], _Target] = {}
    for dialect, endpoint, app in apps:
        for name in catalog.found if set(endpoint.names) <= {"model"} else ():
            params = dict.fromkeys(endpoint.names, name)
            key = endpoint.method, endpoint.path.format(**params)
            found[key] = _Target(dialect, endpoint.scope, False, app, endpoint.path, params)
    return found


def route_path(scope: Scope) -> str:
    """Return the path that the app routes by: without the prefix that a proxy has added."""
    path: str = scope["path"]
    prefix: str = scope.get("root_path", "")
    if prefix and path.startswith(f"{prefix}/"):
        return path.removeprefix(prefix)
    return path


def _route_of(scope: Scope) -> str | None:
    """Return the path of FastAPI's route, with names in the place of values."""
    return getattr(scope.get("route"), "path", None)
