"""What all dialects share: from a request that has been read to its answer."""

import asyncio
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from pydantic import ValidationError
from starlette.types import Send

from serve.api.context import AppContext
from serve.api.dial import merge_dial
from serve.api.followed import followed_by
from serve.api.locks import bound, check_complete, check_degrade, check_locks
from serve.api.model_choice import model_for
from serve.api.record import RequestHeaders, RequestRecord
from serve.api.schemas.request import ClassifyRequest, check_task_fields
from serve.classifier.classifier import Classified, Classifier
from serve.classifier.request import ModelRequest
from serve.engine.row import Priority
from serve.errors import InvalidRequest, TooManyInputs
from serve.policy.flag import AnyFlag
from serve.policy.rollout import Arm
from serve.tokenization.inputs import size_of
from serve.validation import explain

JSON: Final = "application/json"
# Longer answers are written on a thread, because that would block the event loop.
MAX_INLINE_LOGITS: Final = 20_000

_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


class Classification(NamedTuple):
    """An answered request.

    Attributes:
        classifier: the model that has answered.
        request: what was asked.
        classified: the answers.
        total_s: time from the request's arrival to the answers.
        arm: of the rollout that has answered; None without one.
    """

    classifier: Classifier
    request: ClassifyRequest
    classified: Classified
    total_s: float
    arm: Arm | None = None


class Reply(NamedTuple):
    """The body of an answer with status 200, and headers beside its length."""

    content: bytes
    headers: Mapping[str, str] = _NO_HEADERS
    media_type: str = JSON

    async def send(self, send: Send) -> None:
        """Send it."""
        content_type, size = self.media_type.encode("latin-1"), str(len(self.content)).encode()
        headers = [(b"content-length", size), (b"content-type", content_type)]
        for name, text in self.headers.items():
            headers.append((name.lower().encode("latin-1"), text.encode("latin-1")))
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": self.content})


class Asked(NamedTuple):
    """A request in our own form, and what writes its answer in the dialect's.

    Attributes:
        request: what is asked.
        write: writes the answer.
        flag: that a guardrail decides by, which has looked at the locks; None for other routes.
        assigned: whether the policy has chosen the profile, by the name of a detector.
    """

    request: ClassifyRequest
    write: Callable[[Classification], Reply]
    flag: AnyFlag | None = None
    assigned: bool = False


def read_fields(
    fields: dict[str, Any], headers: RequestHeaders, names: Mapping[str, str] | None = None
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


async def answer(context: AppContext, record: RequestRecord, asked: Asked) -> Reply:
    """Classify, and write the answer; a long one is written on a thread. See `classify`."""
    answered = await classify(context, record, asked.request, asked.flag, asked.assigned)
    if num_logits(answered.classified) <= MAX_INLINE_LOGITS:
        return asked.write(answered)
    return await asyncio.to_thread(asked.write, answered)


async def classify(
    context: AppContext,
    record: RequestRecord,
    request: ClassifyRequest,
    flag: AnyFlag | None = None,
    assigned: bool = False,
) -> Classification:
    """Classify for a client that has come by HTTP or gRPC.

    What is found is noted in the record. `flag` and `assigned` are those of `Asked`.

    Raises:
        OfframpError: of the request, the policy, the queue or the model.
        CancelledError: the client has left; HTTP server, gRPC and Ray Serve cancel the call then.
    """
    classifier = model_for(context.catalog, record.client, request.model)
    record.model, record.bundle = classifier.name, classifier.bundle.version
    request = bound(record.client, request)
    _check_choices(record, classifier, request, flag)
    model_request = _model_request(context, record, request, flag)
    model_request.live = followed_by(record, classifier)
    model_request.assigned |= assigned
    inputs = model_request.inputs
    check_task_fields(request, inputs, classifier.traits.task)
    record.client.take_texts(len(inputs), max(map(size_of, inputs)))
    try:
        classified = await classifier.classify(model_request)
    except asyncio.CancelledError:
        context.metrics.disconnected(classifier.name)
        raise
    finally:
        record.queued = model_request.queued
        if not record.queued:
            record.client.take_unqueued(model_request.num_tokens)
        if context.tracing:
            context.tracing.record(model_request, classifier.traits.exits)
    if flag is None and request.timeout_ms is not None:
        check_complete(record, classifier, request, classified)
    _note(record, classifier, classified)
    total_s = time.monotonic() - record.arrived_s
    arm = record.arm.name if record.arm is not None else None
    return Classification(classifier, request, classified, total_s, arm)


def _check_choices(
    record: RequestRecord, classifier: Classifier, request: ClassifyRequest, flag: AnyFlag | None
) -> None:
    """Refuse what a request may not choose; a guardrail has looked at the locks itself."""
    if flag is None:
        check_locks(record, classifier, request)
    if request.degrade is not None:
        check_degrade(record, classifier, request)


def _note(record: RequestRecord, classifier: Classifier, classified: Classified) -> None:
    """Note what was run for a request."""
    layers = classifier.traits.exits
    left_at = [layers[index] for index in classified.exit_indices]
    record.rows, record.layers = len(left_at), sum(left_at)
    if record.arm is not None:
        record.arm.left(left_at)


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
    record: RequestRecord,
    request: ClassifyRequest,
    flag: AnyFlag | None,
) -> ModelRequest:
    client, max_inputs = record.client, context.limits.max_inputs
    asked = Priority[request.priority.upper()] if "priority" in request.model_fields_set else None
    priority = client.priority(asked)
    inputs = request.read_inputs()
    check_inputs(len(inputs), max_inputs)
    deadline_s = float("inf")
    if request.timeout_ms is not None:
        deadline_s = record.arrived_s + request.timeout_ms / 1000
    return ModelRequest(
        inputs,
        request.exit_choice,
        deadline_s,
        request.truncate,
        priority,
        exit_trace="exits" in request.returned,
        take_tokens=client.take_tokens,
        client=client.identity,
        traced=context.tracing is not None,
        flag=flag or request.flag,
        windows=request.windows,
        aggregation=request.aggregation or "simple",
        max_rows=max_inputs,
        take_rows=client.take_rows,
        assigned=client.key is not None and bool(client.key.profiles),
        special_tokens=request.special_tokens,
        degrade=request.degrade,
    )
