"""Health and metrics."""

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response

from serve.api.context import AppContext
from serve.api.schemas.base import ResponseModel
from serve.api.schemas.error import ErrorBody
from serve.errors import Unavailable


class Health(ResponseModel):
    """`ok`, or why not."""

    status: str


def operation_routes(site: AppContext) -> APIRouter:
    """Return the routes for whoever runs the server."""
    router = APIRouter(tags=["operations"])

    @router.get("/health/live")
    async def live() -> Health:
        """Tell that the process answers at all."""
        return Health(status="ok")

    @router.get(
        "/health/ready",
        responses={503: {"model": ErrorBody, "description": "Not (or no longer) ready."}},
    )
    async def ready() -> Health:
        """Tell that every model is loaded and warmed and its engine runs."""
        faults = site.catalog.faults()
        if faults:
            raise Unavailable(f"no engine runs for {', '.join(faults)}")
        return Health(status="ok")

    @router.get(
        "/metrics",
        response_class=Response,
        responses={200: {"description": "Prometheus text.", "content": {"text/plain": {}}}},
    )
    async def metrics() -> Response:
        """Return the metrics of every replica as Prometheus text."""
        text = await site.replicas.metrics_text()
        return Response(text, media_type=CONTENT_TYPE_LATEST)

    return router
