"""What guardrails share: texts that a flag decides about."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from serve.api.classification import Classification, classify, read_fields, respond
from serve.api.context import AppContext
from serve.api.dial import exit_headers
from serve.api.schemas.guardrails import GuardrailParameters
from serve.api.schemas.request import ClassifyRequest
from serve.classifier.classifier import Classifier
from serve.classifier.flagger import Found
from serve.errors import DeadlineExceeded, InvalidRequest
from serve.rules.reason import Reason

# Stands in the place of a blank text: the places of the others stay, and settings are checked also
# where all texts are blank.
_IN_PLACE_OF_BLANK = "none"


class Flagged(NamedTuple):
    """Texts that have been classified under a flag.

    Attributes:
        blank: of each text, whether it is whitespace alone; such a text is never flagged.
        kind: of the model, as detectors name it.
        answered: the answers.
    """

    blank: Sequence[bool]
    kind: str
    answered: Classification

    async def respond(self, make: Callable[[list[list[Found]]], Any]) -> Response:
        """Return as JSON what `make` makes of what flags each text.

        Many tokens are read on a thread.
        """
        answered = self.answered
        headers = exit_headers(answered.classifier, answered.classified)
        return await respond(answered, lambda: make(self.found()), headers)

    def found(self) -> list[list[Found]]:
        """Return what flags each text."""
        classified = self.answered.classified
        flagger = classified.flagger
        assert flagger is not None
        # There is one answer more than texts where there are no texts.
        answers = zip(self.blank, classified.answers, classified.tokens, strict=False)
        return [[] if blank else flagger.found(answer, tokens) for blank, answer, tokens in answers]

    def check_complete(self, found: Sequence[Sequence[Found]]) -> None:
        """Refuse to call a text unflagged whose deadline has cut its classification short.

        Raises:
            DeadlineExceeded: there is such a text.
        """
        answers = zip(self.blank, found, self.answered.classified.answers, strict=False)
        for blank, flags, answer in answers:
            if not blank and not flags and answer.reason is Reason.DEADLINE:
                raise DeadlineExceeded(
                    "timeout_ms passed before the exit rule was content with every text, so that "
                    "none flags it is not known; allow more time"
                )


async def flag_texts(
    context: AppContext,
    request: Request,
    texts: Sequence[str],
    asked: GuardrailParameters,
    place: str,
) -> Flagged:
    """Classify texts under the flag of the request or its profile.

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
    blank = [not text.strip() for text in texts]
    inputs = [_IN_PLACE_OF_BLANK if b else t for b, t in zip(blank, texts, strict=True)]
    names = {name: f"{place}.{name}" for name in type(asked).model_fields}
    fields = _fields(asked, place) | {"inputs": inputs or [_IN_PLACE_OF_BLANK]}
    body = read_fields(fields, request.headers, names)
    body = body.model_copy(update={"flag": _flag(classifier, body, asked.threshold, place)})
    kind = _KINDS[classifier.bundle.manifest.task]
    return Flagged(blank, kind, await classify(context, request, body))


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
