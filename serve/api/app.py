"""The HTTP app, put together."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi_offline import FastAPIOffline

from serve.api.context import AppContext
from serve.api.errors import add_problem_handlers
from serve.api.middleware import RequestMiddleware
from serve.api.routes.classify import CLASSIFY, answering, classify_routes
from serve.api.routes.models import model_routes, policy_routes
from serve.api.routes.operations import operation_routes
from serve.api.schemas.error import ErrorBody
from serve.api.shortcut import Shortcut
from serve.config import DRAIN_S
from serve.version import __version__

DESCRIPTION = """
Classifies texts with transformers that may stop early. Every request may say when a text leaves
the model (`exit`); without it the live policy's default rule decides.
"""


async def _nothing() -> None:
    pass


def build_http_app(
    site: AppContext, stop_first: Callable[[], Awaitable[None]] = _nothing
) -> FastAPI:
    """Return the ASGI app over these models; its lifespan starts and stops their engines.

    Args:
        site: the models.
        stop_first: what else is to stop, before the engines.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        site.catalog.start()
        yield
        await stop_first()
        # On a thread: the loop must stay free to pass on the last answers.
        await asyncio.to_thread(site.catalog.stop, DRAIN_S)

    app = FastAPIOffline(
        title="Offramp",
        version=__version__,
        description=DESCRIPTION,
        redoc_url=None,
        # A redirect is no JSON, and loses the body with most clients.
        redirect_slashes=False,
        responses={"default": {"model": ErrorBody, "description": "Anything else that failed."}},
        lifespan=lifespan,
    )
    app.include_router(classify_routes())
    app.include_router(model_routes(site))
    app.include_router(policy_routes(site))
    app.include_router(operation_routes(site))
    add_problem_handlers(app)
    app.add_middleware(Shortcut, route=CLASSIFY, answer=answering(site))
    app.add_middleware(
        RequestMiddleware, metrics=site.metrics, max_body_bytes=site.limits.max_body_bytes
    )
    return app
