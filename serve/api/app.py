"""Builds the HTTP app."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi_offline import FastAPIOffline
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.types import ASGIApp

from serve.api.context import AppContext
from serve.api.dial import DIAL
from serve.api.errors import add_error_handlers
from serve.api.exit_report import ANSWERED
from serve.api.followed import STICKY
from serve.api.forwarded import Forwarded
from serve.api.front import Front
from serve.api.record import ARM, BUNDLE, REPLICA
from serve.api.routes.dry_run import add_dry_run_route
from serve.api.routes.model_changes import add_change_routes
from serve.api.routes.models import add_model_routes
from serve.api.routes.operations import add_document_route, add_operation_routes
from serve.api.routes.policy import add_policy_routes
from serve.api.routes.policy_events import add_event_routes
from serve.api.routes.policy_history import add_history_routes
from serve.api.routes.quality import add_quality_route
from serve.api.routes.rollout import add_rollout_routes
from serve.api.schemas.error import ErrorBody
from serve.api.scopes import describe_access
from serve.console.pages import add_console_routes
from serve.http.settings import DRAIN_S
from serve.tracing import telemetry
from serve.version import __version__

DESCRIPTION = """
Classifies texts with transformers that may stop early. A request may say with `exit` when a text
leaves the model; without it the default rule of the live policy decides.
"""


async def _stop_nothing() -> None:
    pass


def build_http_app(
    context: AppContext, stop_first: Callable[[], Awaitable[None]] = _stop_nothing
) -> FastAPI:
    """Return the ASGI app; its lifespan starts and stops the engines.

    `stop_first` is called at shutdown, before the engines stop.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        context.catalog.start()
        yield
        await stop_first()
        await context.catalog.retired()
        # On a thread, because the event loop delivers the last answers meanwhile.
        await asyncio.to_thread(context.catalog.stop, DRAIN_S)
        if context.tracing:
            await asyncio.to_thread(context.tracing.provider.shutdown)  # sends what is left

    app = FastAPIOffline(
        title="Offramp",
        version=__version__,
        description=DESCRIPTION,
        redoc_url=None,
        # A redirect is not JSON, and most clients drop the body when they follow it.
        redirect_slashes=False,
        responses={"default": {"model": ErrorBody, "description": "Any other error."}},
        lifespan=lifespan,
        telemetry=telemetry(context.tracing),
    )
    for dialect in context.dialects:
        for endpoint in dialect.endpoints:
            endpoint.add_to(app, context)
        dialect.add_routes(app, context)
    for add_routes in (
        add_model_routes,
        add_change_routes,
        add_policy_routes,
        add_history_routes,
        add_dry_run_route,
        add_event_routes,
        add_quality_route,
        add_rollout_routes,
        add_operation_routes,
    ):
        add_routes(app, context)
    add_console_routes(app)
    add_error_handlers(app)
    describe_access(app, context.dialects)
    add_document_route(app)
    make_stack = app.build_middleware_stack
    app.build_middleware_stack = lambda: _behind_front(make_stack(), app, context)  # type: ignore[method-assign]
    return app


def _behind_front(stack: ASGIApp, app: FastAPI, context: AppContext) -> ASGIApp:
    """Put `Front`, which answers unexpected errors, in the place of Starlette's outermost layer."""
    assert isinstance(stack, ServerErrorMiddleware)
    front: ASGIApp = Front(stack.app, context, app.router.routes)
    if context.cors_origins:
        front = _behind_cors(front, context)
    return Forwarded(front, context.proxies) if context.proxies else front


def _behind_cors(front: ASGIApp, context: AppContext) -> ASGIApp:
    return CORSMiddleware(  # outside of `Front`: browsers ask first without a key
        front,
        allow_origins=context.cors_origins,
        allow_methods=["DELETE", "GET", "PATCH", "POST", "PUT"],
        allow_headers=[
            *("Authorization", "Content-Type", "If-Match", "X-API-Key", "X-Request-Id"),
            *("traceparent", "tracestate", STICKY),
            *DIAL,
        ],
        expose_headers=["ETag", "X-Request-Id", "Retry-After", ARM, BUNDLE, REPLICA, *ANSWERED],
    )
