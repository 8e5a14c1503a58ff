"""What guardrails share: texts that a flag decides about."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from serve.api.classification import Classification, classify, read_fields, respond
from serve.api.context import AppContext
from serve.api.dial import exit_headers
from serve.api.schemas.guardrails import GuardrailParameters
from serve.api.schemas.request import ClassifyRequest
from serve.classifier.classifier import Classifier
from serve.classifier.flagger import Found
from serve.errors import InvalidRequest


class Flagged(NamedTuple):
    """Texts that have been classified under a flag.

    Attributes:
        places: of those texts that are not blank.
        kind: of the model, as detectors name it.
        answered: their answers; None if all are blank.
    """

    places: Sequence[int]
    kind: str
    answered: Classification | None = None

    async def respond(self, make: Callable[[dict[int, list[Found]]], Any]) -> Response:
        """Return as JSON what `make` makes of what flags each text, by its place.

        Many tokens are read on a thread.
        """
        answered = self.answered
        if answered is None:
            return JSONResponse(make({}))
        headers = exit_headers(answered.classifier, answered.classified)

        def made() -> Any:
            return make(dict(zip(self.places, _found(answered), strict=True)))

        return await respond(answered, made, headers)


async def flag_texts(
    context: AppContext,
    request: Request,
    texts: Sequence[str],
    asked: GuardrailParameters,
    place: str,
) -> Flagged:
    """Classify texts under the flag of the request or its profile; leave out blank ones.

    Args:
        context: of the routes.
        request: from the client; its headers may hold the dial.
        texts: any number.
        asked: what the request says of them.
        place: where it says so, for messages.

    Raises:
        OfframpError: of the request, or there is no flag.
    """
    classifier = context.catalog.pick(asked.model)
    request.state.model = classifier.name
    kind = _KINDS[classifier.bundle.manifest.task]
    said = {place: text for place, text in enumerate(texts) if text.strip()}
    names = {name: f"{place}.{name}" for name in type(asked).model_fields}
    # Where there is nothing to classify, the rest is checked all the same.
    fields = _fields(asked, place) | {"inputs": list(said.values()) or "none"}
    body = read_fields(fields, request.headers, names)
    body = body.model_copy(update={"flag": _flag(classifier, body, asked.threshold, place)})
    if not said:
        return Flagged((), kind)
    return Flagged(list(said), kind, await classify(context, request, body))


# In detectors, `detection` names what a model does and `detection_type` its label.
_KINDS = {
    "single_label": "single_label_classification",
    "multi_label": "multi_label_classification",
    "regression": "regression",
    "token": "token_classification",
}


def _fields(asked: GuardrailParameters, place: str) -> dict[str, Any]:
    if asked.profile is not None and asked.exit is not None:
        raise InvalidRequest(f"{place}: profile and exit at once; send one")
    return {
        "model": asked.model,
        "exit": asked.exit if asked.profile is None else {"profile": asked.profile},
        "flag": asked.flag,
        "windows": asked.windows,
        "timeout_ms": asked.timeout_ms,
        "priority": asked.priority,
    }


def _flag(
    classifier: Classifier, body: ClassifyRequest, threshold: float | None, place: str
) -> dict[str, float]:
    """Return the flag of a request: its own, or else its profile's."""
    applied = classifier.policy.live.applied
    flag = body.flag or applied.exit_for(body.exit_choice).settings.flag
    if flag is None:
        raise InvalidRequest(
            f"{classifier.name} has no flag to decide by: put one into the profile, such as "
            '{"profiles": {"guard": {"flag": {"LABEL": 0.8}}}, "default": "guard"} with PUT '
            f"/v1/models/{classifier.name}/policy, or send {place}.flag"
        )
    return flag if threshold is None else dict.fromkeys(flag, threshold)


def _found(answered: Classification) -> list[list[Found]]:
    classified = answered.classified
    assert classified.flagger is not None
    return [
        classified.flagger.found(answer, tokens)
        for answer, tokens in zip(classified.answers, classified.tokens, strict=True)
    ]
