"""Builds the HTTP app."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi_offline import FastAPIOffline
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute

from serve.api.context import AppContext
from serve.api.dial import ANSWERED, DIAL
from serve.api.dialect import V1, Dialect
from serve.api.dialects import choose_dialects
from serve.api.errors import add_error_handlers
from serve.api.guard import describe_access
from serve.api.middleware import RequestMiddleware
from serve.api.request_body import JsonRoute
from serve.api.routes.models import add_model_routes
from serve.api.routes.operations import add_operation_routes
from serve.api.routes.policy import add_policy_routes
from serve.api.schemas.error import ErrorBody
from serve.config import DRAIN_S
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

    Args:
        context: the models and what goes with them.
        stop_first: called at shutdown, before the engines stop.

    Raises:
        InvalidRequest: a dialect is unknown.
    """
    spoken = choose_dialects(context.dialects)
    dialects = tuple(each.dialect for each in spoken)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        context.catalog.start()
        yield
        await stop_first()
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
    app.router.route_class = JsonRoute
    # Straight onto the app: FastAPI matches the routes of included routers twice.
    for add_routes in (
        *(each.add_routes for each in spoken),
        add_model_routes,
        add_policy_routes,
        add_operation_routes,
    ):
        add_routes(app, context)
    _put_classifying_first(app, dialects)
    add_error_handlers(app, dialects)
    describe_access(app, dialects)
    app.add_middleware(RequestMiddleware, context=context, dialects=dialects)
    if context.cors_origins:  # outermost: browsers ask first without a key
        app.add_middleware(
            CORSMiddleware,
            allow_origins=context.cors_origins,
            allow_methods=["GET", "POST", "PUT"],
            allow_headers=["Authorization", "Content-Type", "X-API-Key", "X-Request-Id", *DIAL],
            expose_headers=["X-Request-Id", "Retry-After", *ANSWERED],
        )
    return app


def _put_classifying_first(app: FastAPI, dialects: Sequence[Dialect]) -> None:
    """Order the routes: a request is held against one after the other, 2 microseconds each.

    Our own route is the first, then come those by which other dialects classify.
    """
    patterns = [V1.classifies, *(dialect.classifies for dialect in dialects)]

    def place(route: BaseRoute) -> int:
        path = getattr(route, "path", "")
        found = (i for i, pattern in enumerate(patterns) if pattern.fullmatch(path))
        return next(found, len(patterns))

    app.router.routes.sort(key=place)
