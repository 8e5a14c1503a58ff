"""Health and metrics."""

import asyncio
from functools import lru_cache

import orjson
from fastapi import FastAPI, Request
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response
from starlette.routing import Route

from serve.api.context import AppContext
from serve.api.schemas.base import ResponseModel
from serve.api.schemas.error import ErrorBody
from serve.console.pages import page, wants_page
from serve.errors import Unavailable
from serve.version import __version__


class About(ResponseModel):
    """What answers here."""

    name: str
    version: str
    docs: str


class Health(ResponseModel):
    """Health of the server."""

    status: str


def check_ready(context: AppContext) -> None:
    """Check that every model's engine runs, and that no stop is near.

    Raises:
        Unavailable: one does not, or the server is stopping.
    """
    if context.connections.stopping:
        raise Unavailable("the server is stopping; send new requests to another one")
    faults = context.catalog.faults()
    if faults:
        raise Unavailable(f"no engine runs for {', '.join(faults)}")


def add_document_route(app: FastAPI) -> None:
    """Answer `/openapi.json` in FastAPI's place, which would write it anew for every request.

    That takes as long as several classifications, and the route needs no key.
    """

    @lru_cache(maxsize=4)
    def written(root_path: str) -> bytes:
        document = app.openapi()
        if root_path:
            document = {**document, "servers": [{"url": root_path}]}
        return orjson.dumps(document)

    async def openapi(request: Request) -> Response:
        root_path = request.scope.get("root_path", "").rstrip("/")
        content = await asyncio.to_thread(written, root_path)
        return Response(content, media_type="application/json")

    app.router.routes.insert(0, Route(str(app.openapi_url), openapi, include_in_schema=False))


def add_operation_routes(app: FastAPI, context: AppContext) -> None:
    """Add the routes for probes and for Prometheus."""

    @app.get("/", tags=["operations"], response_model=About)
    async def about(request: Request) -> About | Response:
        """Tell what answers here; load balancers ask this if they are told nothing else.

        A browser, which accepts `text/html`, gets the console.
        """
        if wants_page(request):
            return page(request)
        return About(name="offramp", version=__version__, docs="/docs")

    @app.get("/health/live", tags=["operations"])
    async def live() -> Health:
        """Tell whether the process answers."""
        return Health(status="ok")

    @app.get(
        "/health/ready",
        tags=["operations"],
        responses={503: {"model": ErrorBody, "description": "Not ready, or not any more."}},
    )
    async def ready() -> Health:
        """Tell whether every model is loaded and warmed, its engine runs, and no stop is near."""
        check_ready(context)
        return Health(status="ok")

    @app.get(
        "/metrics",
        tags=["operations"],
        response_class=Response,
        responses={200: {"description": "Prometheus text.", "content": {"text/plain": {}}}},
    )
    async def metrics() -> Response:
        """Return the metrics of every replica as Prometheus text."""
        text = await context.replicas.metrics_text()
        return Response(text, media_type=CONTENT_TYPE_LATEST)
