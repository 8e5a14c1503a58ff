"""POST /v1/classify."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from serve.api.context import AppContext
from serve.api.disconnect import ClientLeft, unless_client_leaves
from serve.api.long_json import written
from serve.api.request_body import BODY_ERRORS, read_body
from serve.api.response_builder import num_logits, response
from serve.api.schemas.error import ErrorBody
from serve.api.schemas.request import ClassifyRequest, check_suits
from serve.api.schemas.response import ClassifyResponse
from serve.api.shortcut import Route
from serve.api.task_outputs import Json
from serve.classifier.request import ModelRequest
from serve.engine.row import Priority
from serve.errors import Cancelled, TooManyInputs

CLASSIFY = Route("POST", "/v1/classify")

# More are read and written on a thread, so that they do not hold up the event loop.
MAX_INLINE_LOGITS = 20_000

ERRORS: dict[int | str, dict[str, Any]] = {
    **BODY_ERRORS,
    403: {"model": ErrorBody, "description": "The policy does not allow this `exit`."},
    404: {"model": ErrorBody, "description": "No such model."},
    422: {"model": ErrorBody, "description": "The request asks for something that cannot be."},
    429: {"model": ErrorBody, "description": "The queue is full; see Retry-After."},
    500: {"model": ErrorBody, "description": "The model failed on this input."},
    503: {"model": ErrorBody, "description": "The server is starting or stopping."},
    504: {
        "model": ErrorBody,
        "description": "timeout_ms passed before every text had come by an exit.",
    },
}


def classify_routes() -> APIRouter:
    """Return the route, for the documentation; it is answered by `answering`, see `Shortcut`."""
    router = APIRouter(tags=["classify"])

    @router.post(CLASSIFY.path, response_model=ClassifyResponse, responses=ERRORS)
    async def classify(body: ClassifyRequest) -> None:
        """Classify one or more texts, each leaving the model when its exit rule allows."""
        raise NotImplementedError

    return router


def answering(site: AppContext) -> Callable[[Request], Awaitable[Response]]:
    """Return what answers classification requests."""

    async def classify(request: Request) -> Response:
        body = await read_body(request, ClassifyRequest)
        classifier = site.catalog.pick(body.model)
        request.state.model = classifier.name
        arrived_s = request.state.arrived_s
        asked = _read(body, site.limits.max_inputs, arrived_s)
        check_suits(body, asked.inputs, classifier.bundle.manifest.task)
        try:
            done = await unless_client_leaves(request.receive, classifier.classify(asked))
        except asyncio.CancelledError:  # Ray Serve's way of saying that the client has left
            site.metrics.disconnected(classifier.name)
            raise
        except ClientLeft:
            site.metrics.disconnected(classifier.name)
            raise Cancelled("the client has left") from None
        answered_s = time.monotonic() - arrived_s

        def told() -> Json:
            return response(classifier, body, done, answered_s)

        if num_logits(done) <= MAX_INLINE_LOGITS:
            return JSONResponse(told())
        content = await asyncio.to_thread(lambda: written(told()))
        return Response(content, media_type=JSONResponse.media_type)

    return classify


def _read(body: ClassifyRequest, max_inputs: int, arrived_s: float) -> ModelRequest:
    inputs = body.read_inputs()
    if len(inputs) > max_inputs:
        raise TooManyInputs(f"inputs: {len(inputs)} texts, at most {max_inputs} per request")
    return ModelRequest(
        inputs,
        body.exit,
        math.inf if body.timeout_ms is None else arrived_s + body.timeout_ms / 1000,
        body.truncate,
        Priority[body.priority.upper()],
        trails="exits" in body.returned,
    )
