"""What all dialects share: from a request that has been read to its answer."""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from serve.api.context import AppContext
from serve.api.dial import merge_dial
from serve.api.followed import followed_by
from serve.api.locks import bound, check_complete, check_degrade, check_locks
from serve.api.model_choice import model_for
from serve.api.request import Headers, Request
from serve.api.response import Response
from serve.api.schemas.request import ClassifyRequest, check_task_fields
from serve.classifier.classifier import Classified, Classifier
from serve.classifier.request import ModelRequest
from serve.engine.row import Priority
from serve.errors import InvalidRequest, TooManyInputs
from serve.policy.flag import AnyFlag
from serve.policy.rollout import Arm
from serve.tokenization.inputs import size_of
from serve.validation import explain

# Longer answers are written on a thread, because that would block the event loop.
MAX_INLINE_LOGITS: Final = 20_000


class Classification(NamedTuple):
    """An answered request.

    Attributes:
        classifier: the model that has answered.
        request: what was asked.
        classified: the answers.
        total_s: time from the request's arrival to the answers.
        arm: the arm of the rollout that has answered; None without one.
    """

    classifier: Classifier
    request: ClassifyRequest
    classified: Classified
    total_s: float
    arm: Arm | None = None


def read_fields(
    fields: dict[str, Any], headers: Headers, names: Mapping[str, str] | None = None
) -> ClassifyRequest:
    """Return a request in our own form from the fields of another dialect.

    Args:
        fields: fields of `ClassifyRequest`; None stands for a field that was not given.
        headers: the request's headers; they may hold the dial.
        names: what the dialect calls our fields, for messages.

    Raises:
        InvalidRequest: a field is wrong.
    """
    given = {name: value for name, value in fields.items() if value is not None}
    try:
        return ClassifyRequest.model_validate(merge_dial(given, headers))
    except ValidationError as error:
        raise InvalidRequest(explain(error, names)) from None


async def respond(
    context: AppContext,
    request: Request,
    asked: ClassifyRequest,
    write: Callable[[Classification], Response],
    flag: AnyFlag | None = None,
    assigned: bool = False,
) -> Response:
    """Classify, and write the answer; a long one is written on a thread. See `classify`."""
    answered = await classify(context, request, asked, flag, assigned)
    if num_logits(answered.classified) <= MAX_INLINE_LOGITS:
        return write(answered)
    return await asyncio.to_thread(write, answered)


async def classify(
    context: AppContext,
    request: Request,
    asked: ClassifyRequest,
    flag: AnyFlag | None = None,
    assigned: bool = False,
) -> Classification:
    """Classify for a client that has come by HTTP or gRPC, and note in the request what is found.

    Args:
        context: what serves.
        request: the request that has come.
        asked: what it asks, in our own form.
        flag: the flag that a guardrail decides by, whose route has checked the locks itself; None
            for other routes.
        assigned: whether the policy has chosen the profile, by the name of a detector.

    Raises:
        OfframpError: of the request, the policy, the queue or the model.
        CancelledError: the client has left; HTTP server, gRPC and Ray Serve cancel the call then.
    """
    classifier = model_for(context.catalog, request.client, asked.model)
    request.model, request.bundle = classifier.name, classifier.bundle.version
    asked = bound(request.client, asked)
    _check_choices(request, classifier, asked, flag)
    model_request = _model_request(context, request, asked, flag)
    model_request.live = followed_by(request, classifier)
    model_request.assigned |= assigned
    inputs = model_request.inputs
    check_task_fields(asked, inputs, classifier.traits.task)
    request.client.take_texts(len(inputs), max(map(size_of, inputs)))
    try:
        classified = await classifier.classify(model_request)
    except asyncio.CancelledError:
        context.metrics.disconnected(classifier.name)
        raise
    finally:
        request.queued = model_request.queued
        if not request.queued:
            request.client.take_unqueued(model_request.num_tokens)
        if context.tracing and request.span:
            context.tracing.record(request.span, model_request, classifier.traits.exits)
    if flag is None and asked.timeout_ms is not None:
        check_complete(request, classifier, asked, classified)
    _note(request, classifier, classified)
    total_s = time.monotonic() - request.arrived_s
    arm = request.arm.name if request.arm is not None else None
    return Classification(classifier, asked, classified, total_s, arm)


def _check_choices(
    request: Request, classifier: Classifier, asked: ClassifyRequest, flag: AnyFlag | None
) -> None:
    """Refuse what a request may not choose; a guardrail has looked at the locks itself."""
    if flag is None:
        check_locks(request, classifier, asked)
    if asked.degrade is not None:
        check_degrade(request, classifier, asked)


def _note(request: Request, classifier: Classifier, classified: Classified) -> None:
    """Note what was run for a request."""
    layers = classifier.traits.exits
    left_at = [layers[index] for index in classified.exit_indices]
    request.rows, request.layers = len(left_at), sum(left_at)
    if request.arm is not None:
        request.arm.left(left_at)


def check_inputs(number: int, max_inputs: int) -> None:
    """Refuse a request of more inputs than one may have.

    Raises:
        TooManyInputs: it has more.
    """
    if number > max_inputs:
        raise TooManyInputs(f"inputs: {number} texts, at most {max_inputs} per request")


def num_logits(classified: Classified) -> int:
    """Return the number of logits in the answers, those of the exits on the way included."""
    answers = classified.answers
    of_answers = sum([answer.logits.size for answer in answers])
    return of_answers + sum([passed.logits.size for a in answers for passed in a.exit_trace])


def _model_request(
    context: AppContext,
    request: Request,
    asked: ClassifyRequest,
    flag: AnyFlag | None,
) -> ModelRequest:
    client, max_inputs = request.client, context.limits.max_inputs
    wanted = Priority[asked.priority.upper()] if "priority" in asked.model_fields_set else None
    priority = client.priority(wanted)
    inputs = asked.read_inputs()
    check_inputs(len(inputs), max_inputs)
    deadline_s = float("inf")
    if asked.timeout_ms is not None:
        deadline_s = request.arrived_s + asked.timeout_ms / 1000
    return ModelRequest(
        inputs,
        asked.exit_choice,
        deadline_s,
        asked.truncate,
        priority,
        exit_trace="exits" in asked.returned,
        take_tokens=client.take_tokens,
        client=client.identity,
        traced=request.span is not None,
        flag=flag or asked.flag,
        windows=asked.windows,
        aggregation=asked.aggregation or "simple",
        max_rows=max_inputs,
        take_rows=client.take_rows,
        assigned=client.key is not None and bool(client.key.profiles),
        special_tokens=asked.special_tokens,
        degrade=asked.degrade,
    )
