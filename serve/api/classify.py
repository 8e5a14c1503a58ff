"""What all dialects share: from a request that has been read to its answer."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from pydantic import ValidationError

from serve.api.choices import (
    bound,
    check_complete,
    check_degrade,
    check_locks,
    followed_by,
    model_for,
    note_own_choice,
)
from serve.api.context import AppContext
from serve.api.dial import merge_dial
from serve.api.request import Headers, Request
from serve.api.response import Response
from serve.classifier.classification import Classification
from serve.classifier.classifier import Classifier
from serve.classifier.classify_request import ClassifyRequest, check_task_fields
from serve.engine.row import Priority
from serve.errors import InvalidRequest, TooManyInputs
from serve.policy.flag import AnyFlag
from serve.rules.criterion import Reason
from serve.tokenization.inputs import size_of
from serve.validation import explain

# Longer answers are written on a thread, because that would block the event loop.
MAX_INLINE_LOGITS: Final = 20_000


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
    if num_logits(answered) <= MAX_INLINE_LOGITS:
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
    client, max_inputs = request.client, context.limits.max_inputs
    classifier = model_for(context.catalog, client, asked.model)
    request.model, request.bundle = classifier.name, classifier.bundle.version
    asked = bound(client, asked)
    _check_choices(request, classifier, asked, flag, assigned)
    wanted = Priority[asked.priority.upper()] if "priority" in asked.model_fields_set else None
    found = Classification(
        asked,
        client,
        request.arrived_s,
        client.priority(wanted),
        flag,
        assigned=assigned or (client.key is not None and bool(client.key.profiles)),
        max_rows=max_inputs,
        traced=request.span is not None,
    )
    inputs = found.inputs
    check_inputs(len(inputs), max_inputs)
    live = followed_by(request, classifier)
    found.judged = _is_judged(request, len(inputs))
    check_task_fields(asked, inputs, classifier.traits.task)
    client.take_texts(len(inputs), max(map(size_of, inputs)))
    try:
        await classifier.classify(found, live)
    except asyncio.CancelledError:
        context.metrics.disconnected(classifier.name)
        raise
    finally:
        request.queued = found.queued
        if not request.queued:
            client.take_unqueued(found.num_tokens)
        if context.tracing and request.span:
            context.tracing.record(request.span, found)
    if flag is None and asked.timeout_ms is not None:
        check_complete(request, found)
    _note(request, found)
    return found


def _check_choices(
    request: Request,
    classifier: Classifier,
    asked: ClassifyRequest,
    flag: AnyFlag | None,
    assigned: bool,
) -> None:
    """Refuse what a request may not choose; a guardrail has looked at the locks itself."""
    note_own_choice(request, classifier, asked, assigned)
    if flag is None:
        check_locks(request, classifier, asked)
    if asked.degrade is not None:
        check_degrade(request, classifier, asked)


def _is_judged(request: Request, num_texts: int) -> bool:
    """Tell whether a request counts in the verdict on its arm, and note it."""
    if request.arm is not None and request.judged is None:
        request.judged = request.arm.takes(request.client.identity, num_texts)
    return bool(request.judged)


def _note(request: Request, found: Classification) -> None:
    """Note what was run for a request."""
    left_at = list(map(found.classifier.traits.layer_of, found.exit_indices))
    request.rows, request.layers = len(left_at), sum(left_at)
    request.cut_short = any(answer.reason is Reason.DEADLINE for answer in found.answers)
    if request.arm is not None and request.judged and not request.cut_short:
        request.arm.left(left_at, found.chosen.moved)


def check_inputs(number: int, max_inputs: int) -> None:
    """Refuse a request of more inputs than one may have.

    Raises:
        TooManyInputs: it has more.
    """
    if number > max_inputs:
        raise TooManyInputs(f"inputs: {number} texts, at most {max_inputs} per request")


def num_logits(answered: Classification) -> int:
    """Return the number of logits in the answers, those of the exits on the way included."""
    answers = answered.answers
    of_answers = sum([answer.logits.size for answer in answers])
    return of_answers + sum([passed.logits.size for a in answers for passed in a.exit_trace])
