"""POST /v1/classify."""

import asyncio
import math
import time
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from serve.api.client import client_of
from serve.api.context import AppContext
from serve.api.disconnect import ClientDisconnected, cancel_on_disconnect
from serve.api.json_encoding import encode_by_element
from serve.api.request_body import BODY_ERRORS
from serve.api.response_builder import build_response, num_logits
from serve.api.schemas.error import ErrorBody
from serve.api.schemas.request import ClassifyRequest, check_task_fields
from serve.api.schemas.response import ClassifyResponse
from serve.classifier.classifier import Classified, Classifier
from serve.classifier.request import ModelRequest
from serve.engine.row import Priority
from serve.errors import Cancelled, TooManyInputs

# Longer answers are built on a thread, because that would block the event loop.
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


def add_classify_route(app: FastAPI, context: AppContext) -> None:
    """Add the route that classifies."""

    @app.post("/v1/classify", tags=["classify"], response_model=ClassifyResponse, responses=ERRORS)
    async def classify(request: Request, body: ClassifyRequest) -> Response:
        """Classify one or more texts, each leaving the model when its exit rule allows."""
        classifier = context.catalog.pick(body.model)
        request.state.model = classifier.name
        arrived_s = request.state.arrived_s
        client = client_of(request)
        model_request = _model_request(body, client, context.limits.max_inputs, arrived_s)
        check_task_fields(body, model_request.inputs, classifier.bundle.manifest.task)
        work = classifier.classify(model_request)
        try:
            classified = await cancel_on_disconnect(request.receive, work)
        except asyncio.CancelledError:  # Ray Serve cancels when the client has disconnected
            context.metrics.disconnected(classifier.name)
            raise
        except ClientDisconnected:
            context.metrics.disconnected(classifier.name)
            raise Cancelled("the client has left") from None
        return await _respond(classifier, body, classified, time.monotonic() - arrived_s)


def _model_request(
    body: ClassifyRequest, client: str, max_inputs: int, arrived_s: float
) -> ModelRequest:
    inputs = body.read_inputs()
    if len(inputs) > max_inputs:
        raise TooManyInputs(f"inputs: {len(inputs)} texts, at most {max_inputs} per request")
    return ModelRequest(
        inputs,
        body.exit_choice,
        math.inf if body.timeout_ms is None else arrived_s + body.timeout_ms / 1000,
        body.truncate,
        Priority[body.priority.upper()],
        exit_trace="exits" in body.returned,
        client=client,
    )


async def _respond(
    classifier: Classifier, body: ClassifyRequest, classified: Classified, total_s: float
) -> Response:
    if num_logits(classified) <= MAX_INLINE_LOGITS:
        return JSONResponse(build_response(classifier, body, classified, total_s))

    def encoded() -> bytes:
        return encode_by_element(build_response(classifier, body, classified, total_s))

    return Response(await asyncio.to_thread(encoded), media_type=JSONResponse.media_type)
