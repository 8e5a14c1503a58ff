"""The HTTP app: from the head of a request to its line in the access log."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Router as LifespanRouter
from starlette.types import ASGIApp, Receive, Scope, Send

from serve.api.access import Forwarded
from serve.api.choices import STICKY
from serve.api.context import AppContext
from serve.api.dial import DIAL
from serve.api.openapi import Document
from serve.api.recorder import Recorder
from serve.api.request import ARM, BUNDLE, REPLICA, BodyLimit, Headers, Request, expected
from serve.api.response import OwnHeaders, SentAnswer
from serve.api.route import OWN, Dialect, Router
from serve.api.routes import (
    dry_run,
    model_changes,
    models,
    pages,
    policy,
    policy_events,
    quality,
    rollout,
)
from serve.api.routes.operations import operation_routes
from serve.api.shown import ANSWERED
from serve.api.trail import note_refusal
from serve.errors import STOPS, Cancelled
from serve.http.settings import DRAIN_S

_OPERATORS = (
    *models.ROUTES,
    *model_changes.ROUTES,
    *policy.ROUTES,
    *dry_run.ROUTES,
    *policy_events.ROUTES,
    *quality.ROUTES,
    *rollout.ROUTES,
)


class HttpApp:
    """The ASGI app over one table of routes.

    Attributes:
        routes: those of the dialects, and the operators'.
    """

    def __init__(
        self,
        context: AppContext,
        dialects: Sequence[Dialect],
        stop_first: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Make the app.

        Args:
            context: what the routes work with.
            dialects: wire formats that the server speaks.
            stop_first: called at shutdown, before the engines stop.
        """
        self._context, self._stop_first = context, stop_first
        self._recorder = Recorder(context)
        self._own_headers = OwnHeaders(context)
        pages.console_files()  # compressed before requests wait for them
        own = (*_OPERATORS, *operation_routes(context.access.open_metrics), *pages.ROUTES)
        table = [(each, route) for each in dialects for route in each.routes]
        table += [(OWN, route) for route in own]
        document = Document(table)
        table.append((OWN, document.route))
        self._router, self.routes = Router(dialects, table), [route for _, route in table]
        self._outermost = _behind(self._answer, context)

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Start the engines; stop them at the end, when their requests are answered."""
        catalog, tracing = self._context.catalog, self._context.tracing
        catalog.start()
        yield
        if self._stop_first:
            await self._stop_first()
        await catalog.retired()
        # On a thread, because the event loop delivers the last answers meanwhile.
        await asyncio.to_thread(catalog.stop, DRAIN_S)
        if tracing:
            await asyncio.to_thread(tracing.provider.shutdown)  # sends what is left

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or start and stop under a server that asks by ASGI."""
        if scope["type"] == "lifespan":
            await LifespanRouter(lifespan=lambda _: self.lifespan()).lifespan(scope, receive, send)
        elif scope["type"] == "http":
            await self._outermost(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        context, path, method = self._context, _route_path(scope), scope["method"]
        target = self._router.find(method, path)
        headers = Headers.of(scope)
        request = Request(
            headers, method, scope["query_string"].decode("latin-1"), scope.get("root_path", "")
        )
        request.params = target.params
        request.body = BodyLimit(receive, headers, context.limits.max_body_bytes, context.bodies)
        self._recorder.begin(request, target.path, target.route.scope if target.route else None)
        answer = SentAnswer(request, context.answers, self._own_headers, send)
        try:
            context.access.check(scope, request, target.needed, target.probe)
            request.body.client = request.client.identity
            with request.client.in_flight():
                context.answers.check(request.client.identity)
                response = await target.answer(context, request, path)
                await response.send(answer.send)
        except STOPS:  # the client has left
            request.code = Cancelled.status
            raise
        except BaseException as error:
            refusal = target.dialect.response(expected(error, request))
            await refusal.send(answer.send)
        finally:
            request.body.release()
            answer.release()
            if target.needed == "admin":
                note_refusal(request, context.catalog)
            self._recorder.publish(request)


def _behind(app: ASGIApp, context: AppContext) -> ASGIApp:
    """Return the app behind what looks at a request before it."""
    if context.cors_origins:
        app = CORSMiddleware(  # browsers ask first without a key
            app,
            allow_origins=context.cors_origins,
            allow_methods=["DELETE", "GET", "PATCH", "POST", "PUT"],
            allow_headers=[
                *("Authorization", "Content-Type", "If-Match", "X-API-Key", "X-Request-Id"),
                *("traceparent", "tracestate", STICKY),
                *DIAL,
            ],
            expose_headers=["ETag", "X-Request-Id", "Retry-After", ARM, BUNDLE, REPLICA, *ANSWERED],
        )
    return Forwarded(app, context.proxies) if context.proxies else app


def _route_path(scope: Scope) -> str:
    """Return the path without the prefix that a proxy has added."""
    path: str = scope["path"]
    prefix: str = scope.get("root_path", "")
    if prefix and path.startswith(f"{prefix}/"):
        return path.removeprefix(prefix)
    return path
