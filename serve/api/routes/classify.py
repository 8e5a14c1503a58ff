"""POST /v1/classify."""

import asyncio
import math
import time
from typing import Any

from fastapi import FastAPI
from starlette.datastructures import State
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from serve.access.gate import Client
from serve.api.context import AppContext
from serve.api.disconnect import ClientDisconnected, cancel_on_disconnect
from serve.api.json_encoding import encode_by_element
from serve.api.request_body import BODY_ERRORS
from serve.api.response_builder import build_response, num_logits
from serve.api.schemas.error import ErrorBody
from serve.api.schemas.request import ClassifyRequest, check_task_fields
from serve.api.schemas.response import ClassifyResponse
from serve.classifier.classifier import Classified, Classifier
from serve.classifier.request import ModelRequest, RequestTrace
from serve.engine.row import Priority
from serve.errors import Cancelled, TooManyInputs
from serve.tokenization.inputs import size_of

# Longer answers are built on a thread, because that would block the event loop.
MAX_INLINE_LOGITS = 20_000

ERRORS: dict[int | str, dict[str, Any]] = {
    **BODY_ERRORS,
    403: {"model": ErrorBody, "description": "The policy does not allow this `exit`."},
    404: {"model": ErrorBody, "description": "No such model."},
    422: {"model": ErrorBody, "description": "The request asks for something that cannot be."},
    429: {
        "model": ErrorBody,
        "description": "The queue is full, or the key has taken its share.",
        "headers": {
            "Retry-After": {
                "description": "In seconds.",
                "required": True,
                "schema": {"type": "integer", "minimum": 1},
            }
        },
    },
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
        state = request.state
        state.model = classifier.name
        client: Client = state.client
        trace = RequestTrace() if context.tracing else None
        model_request = _model_request(body, context.limits.max_inputs, state, trace)
        check_task_fields(body, model_request.inputs, classifier.bundle.manifest.task)
        inputs = model_request.inputs
        with client.request(len(inputs), max(map(size_of, inputs))):
            work = classifier.classify(model_request)
            try:
                classified = await cancel_on_disconnect(request.receive, work)
            except asyncio.CancelledError:  # Ray Serve cancels when the client has disconnected
                context.metrics.disconnected(classifier.name)
                raise
            except ClientDisconnected:
                context.metrics.disconnected(classifier.name)
                raise Cancelled("the client has left") from None
            finally:
                if context.tracing and trace:
                    context.tracing.record(trace, classifier.bundle.manifest.exit_layers)
        state.rows, state.layers = len(inputs), _layers_run(classifier, classified)
        return await _respond(classifier, body, classified, time.monotonic() - state.arrived_s)


def _layers_run(classifier: Classifier, classified: Classified) -> int:
    exits = classifier.bundle.manifest.exit_layers
    return sum(exits[answer.exit_index] for answer in classified.answers)


def _model_request(
    body: ClassifyRequest, max_inputs: int, state: State, trace: RequestTrace | None
) -> ModelRequest:
    client: Client = state.client
    priority = Priority[body.priority.upper()]
    client.check_priority(urgent=priority < Priority.NORMAL)
    inputs = body.read_inputs()
    if len(inputs) > max_inputs:
        raise TooManyInputs(f"inputs: {len(inputs)} texts, at most {max_inputs} per request")
    return ModelRequest(
        inputs,
        body.exit_choice,
        math.inf if body.timeout_ms is None else state.arrived_s + body.timeout_ms / 1000,
        body.truncate,
        priority,
        exit_trace="exits" in body.returned,
        take_tokens=client.take_tokens,
        client=client.identity,
        trace=trace,
    )


async def _respond(
    classifier: Classifier, body: ClassifyRequest, classified: Classified, total_s: float
) -> Response:
    if num_logits(classified) <= MAX_INLINE_LOGITS:
        return JSONResponse(build_response(classifier, body, classified, total_s))

    def encoded() -> bytes:
        return encode_by_element(build_response(classifier, body, classified, total_s))

    return Response(await asyncio.to_thread(encoded), media_type=JSONResponse.media_type)
