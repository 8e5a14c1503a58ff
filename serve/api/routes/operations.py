"""Health and metrics."""

from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST

from serve.access.keys import Scope
from serve.api.context import AppContext
from serve.api.request import Request
from serve.api.response import Response, json_response
from serve.api.route import Route
from serve.api.routes.pages import console, wants_page
from serve.api.schemas import ResponseModel
from serve.errors import Unavailable
from serve.version import __version__


class About(ResponseModel):
    """The server's name and version."""

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


async def about(context: AppContext, request: Request) -> Response:
    """Return the server's name and version; load balancers ask this path by default.

    A browser, which accepts `text/html`, gets the console.
    """
    if wants_page(request):
        return await console(context, request)
    return json_response(About(name="offramp", version=__version__, docs="/docs"))


async def live(context: AppContext, request: Request) -> Response:
    """Tell whether the process answers."""
    return json_response(Health(status="ok"))


async def ready(context: AppContext, request: Request) -> Response:
    """Tell whether every model is loaded and warmed, its engine runs, and no stop is near."""
    check_ready(context)
    return json_response(Health(status="ok"))


async def metrics(context: AppContext, request: Request) -> Response:
    """Return the metrics of every replica as Prometheus text."""
    return Response(await context.replicas.metrics_text(), media_type=CONTENT_TYPE_LATEST)


_TAG: Final = "operations"
NOT_READY: Final = {503: "Not ready, or not any more."}
_TEXT: Final = {200: {"description": "Prometheus text.", "content": {"text/plain": {}}}}


def operation_routes(open_metrics: bool) -> tuple[Route, ...]:
    """Return the routes for probes and for Prometheus, whose page may need no key."""
    needed: Scope | None = None if open_metrics else "read"
    return (
        Route("GET", "/", about, None, probe=True, tag=_TAG, shown=About),
        Route("GET", "/health/live", live, None, probe=True, tag=_TAG, shown=Health),
        Route(
            "GET",
            "/health/ready",
            ready,
            None,
            probe=True,
            tag=_TAG,
            shown=Health,
            errors=NOT_READY,
        ),
        Route("GET", "/metrics", metrics, needed, tag=_TAG, more={"responses": _TEXT}),
    )
