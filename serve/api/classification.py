"""What all dialects share: from a request that has been read to its answers."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any, NamedTuple

from pydantic import ValidationError
from starlette.datastructures import State
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from serve.access.gate import Client
from serve.api.context import AppContext
from serve.api.dial import merge_dial
from serve.api.disconnect import ClientDisconnected, cancel_on_disconnect
from serve.api.json_encoding import encode_by_element
from serve.api.response_builder import num_logits
from serve.api.schemas.request import ClassifyRequest, check_task_fields
from serve.classifier.classifier import Classified, Classifier
from serve.classifier.request import ModelRequest, RequestTrace
from serve.engine.row import Priority
from serve.errors import Cancelled, InvalidRequest, TooManyInputs
from serve.tokenization.inputs import size_of
from serve.validation import explain

# Longer answers are built on a thread, because that would block the event loop.
MAX_INLINE_LOGITS = 20_000

# Awaits the work of a request, and ends it when the client has left.
Await = Callable[[Coroutine[Any, Any, Classified]], Awaitable[Classified]]


class Classification(NamedTuple):
    """An answered request.

    Attributes:
        classifier: the model that has answered.
        body: what was asked.
        classified: the answers.
        total_s: time from the request's arrival to the answers.
    """

    classifier: Classifier
    body: ClassifyRequest
    classified: Classified
    total_s: float


def read_fields(
    fields: dict[str, Any], headers: Mapping[str, str], names: Mapping[str, str] | None = None
) -> ClassifyRequest:
    """Return a request in our own form from the fields of another dialect.

    Args:
        fields: of `ClassifyRequest`; None stands for a field that was not given.
        headers: of the request; they may hold the dial.
        names: what the dialect calls our fields, for messages.

    Raises:
        InvalidRequest: a field is wrong.
    """
    given = {name: value for name, value in fields.items() if value is not None}
    try:
        return ClassifyRequest.model_validate(merge_dial(given, headers))
    except ValidationError as error:
        raise InvalidRequest(explain(error, names)) from None


async def classify(context: AppContext, request: Request, body: ClassifyRequest) -> Classification:
    """Classify for the client of an HTTP request; its departure cancels the work.

    Raises:
        OfframpError: of the request, the policy, the queue or the model.
    """
    watched = partial(cancel_on_disconnect, request.receive)
    return await classify_watched(context, request.state, body, watched)


async def classify_watched(
    context: AppContext, state: State, body: ClassifyRequest, watched: Await
) -> Classification:
    """Classify for a client that need not have come by HTTP.

    Args:
        context: the models and what goes with them.
        state: of the request, from `serve.api.request_record`; what is found is noted in it.
        body: what is asked.
        watched: raises `ClientDisconnected` when the client has left; the work is cancelled too
            when this call is.

    Raises:
        OfframpError: of the request, the policy, the queue or the model.
    """
    classifier = context.catalog.pick(body.model)
    state.model = classifier.name
    client: Client = state.client
    trace = RequestTrace() if context.tracing else None
    model_request = _model_request(body, context.limits.max_inputs, state, trace)
    check_task_fields(body, model_request.inputs, classifier.bundle.manifest.task)
    inputs = model_request.inputs
    with client.request(len(inputs), max(map(size_of, inputs))):
        try:
            classified = await watched(classifier.classify(model_request))
        except asyncio.CancelledError:  # Ray Serve and gRPC cancel when the client has left
            context.metrics.disconnected(classifier.name)
            raise
        except ClientDisconnected:
            context.metrics.disconnected(classifier.name)
            raise Cancelled("the client has left") from None
        finally:
            if context.tracing and trace:
                context.tracing.record(trace, classifier.bundle.manifest.exit_layers)
    exits = classified.exit_indices
    layers = classifier.bundle.manifest.exit_layers
    state.rows, state.layers = len(exits), sum(layers[index] for index in exits)
    return Classification(classifier, body, classified, time.monotonic() - state.arrived_s)


async def respond(
    answered: Classification, make: Callable[[], Any], headers: Mapping[str, str] | None = None
) -> Response:
    """Return what `make` returns as JSON; long answers are made on a thread."""
    if num_logits(answered.classified) <= MAX_INLINE_LOGITS:
        return JSONResponse(make(), headers=headers)
    encoded = await asyncio.to_thread(lambda: encode_by_element(make()))
    return Response(encoded, media_type=JSONResponse.media_type, headers=headers)


def _model_request(
    body: ClassifyRequest, max_inputs: int, state: State, trace: RequestTrace | None
) -> ModelRequest:
    client: Client = state.client
    asked = Priority[body.priority.upper()] if "priority" in body.model_fields_set else None
    priority = client.priority(asked)
    inputs = body.read_inputs()
    if len(inputs) > max_inputs:
        raise TooManyInputs(f"inputs: {len(inputs)} texts, at most {max_inputs} per request")
    deadline_s = float("inf")
    if body.timeout_ms is not None:
        deadline_s = state.arrived_s + body.timeout_ms / 1000
    return ModelRequest(
        inputs,
        body.exit_choice,
        deadline_s,
        body.truncate,
        priority,
        exit_trace="exits" in body.returned,
        take_tokens=client.take_tokens,
        client=client.identity,
        trace=trace,
        flag=body.flag,
        windows=body.windows,
        aggregation=body.aggregation or "simple",
        max_rows=max_inputs,
        take_rows=client.take_rows,
    )
