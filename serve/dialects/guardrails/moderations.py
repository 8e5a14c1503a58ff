"""OpenAI's moderations: a model's labels are the categories."""

from functools import partial
from typing import Any, ClassVar, Literal

from pydantic import Field
from pydantic.config import JsonDict

from serve.api.classify import check_inputs
from serve.api.context import AppContext
from serve.api.openai_errors import OPENAI_STATUSES, OpenAIError, openai_error
from serve.api.request import Request
from serve.api.response import Response
from serve.api.route import INPUT, TRUNCATE, Dialect, Route
from serve.api.schemas import ResponseModel, examples
from serve.api.shown import check_labels_texts, label_scores
from serve.classifier.classifier import Classifier
from serve.classifier.classify_request import MAX_LIST
from serve.classifier.flagger import FlaggedBy
from serve.dialects.guardrails.flagging import WINDOWS, Flagged, flag_texts
from serve.dialects.guardrails.parameters import GuardrailParameters
from serve.errors import InvalidRequest

_TEXT: JsonDict = {"type": "string"}
_PART: JsonDict = {
    "type": "object",
    "properties": {"type": {"const": "text"}, "text": _TEXT},
    "required": ["type", "text"],
}


class ModerationRequest(GuardrailParameters):
    """Texts to moderate; all fields but `model` and `input` are Offramp's own."""

    model_config = examples(
        {"input": "The movie was awesome.", "flag": {"negative": 0.8}},
        {"input": ["The movie was awesome.", "You are good at messing up."], "profile": "guard"},
    )
    prefix: ClassVar[str] = ""
    reads_scores: ClassVar[bool] = False
    of_several: ClassVar[float | None] = 0.5

    input: Any = Field(
        description="A text, a list of texts, or a list of parts, which are one text together. "
        "Images are refused.",
        json_schema_extra={
            "anyOf": [
                _TEXT,
                {"type": "array", "items": {"anyOf": [_TEXT, _PART]}, "maxItems": MAX_LIST},
            ]
        },
    )

    def check_model(self, classifier: Classifier) -> None:
        """Refuse a model that gives no text labels."""
        check_labels_texts(classifier)
        if classifier.traits.task == "regression":
            raise InvalidRequest(
                f"{classifier.name} gives a value, and no labels that could be categories; use "
                "/v1/classify"
            )


class Moderation(ResponseModel):
    """What was found of one text."""

    flagged: bool = Field(description="Whether any category is.")
    categories: dict[str, bool] = Field(
        description="Whether each label reaches its threshold; false for labels without one."
    )
    category_scores: dict[str, float] = Field(description="The probability of every label.")
    category_applied_input_types: dict[str, list[Literal["text"]]]


class ModerationResponse(ResponseModel):
    """The results in the order of the texts."""

    id: str
    model: str
    results: list[Moderation]


async def moderate(context: AppContext, request: Request, body: ModerationRequest) -> Response:
    """Tell which of a model's labels flag each text, as OpenAI's moderations do."""
    texts = _texts(body.input, context.limits.max_inputs)
    return await flag_texts(
        context, request, body, lambda _: texts, partial(_moderations, request.request_id)
    )


def _texts(given: Any, max_inputs: int) -> list[str]:
    """Return the texts.

    Raises:
        InvalidRequest: the input is none of what it may be.
    """
    if isinstance(given, str):
        return [given]
    if isinstance(given, list) and given:
        check_inputs(len(given), max_inputs)
        if all(isinstance(each, str) for each in given):
            return given
        if all(isinstance(each, dict) for each in given):
            return ["\n".join([_text_of(place, part) for place, part in enumerate(given)])]
    raise InvalidRequest(
        'input: must be a text, a list of texts, or a list of parts such as {"type": "text", '
        '"text": ...}'
    )


def _text_of(place: int, part: dict[str, Any]) -> str:
    if part.get("type") == "image_url":
        raise InvalidRequest(f"input[{place}]: is an image; this server looks at texts only")
    match part:
        case {"type": "text", "text": str(text), **others} if not others:
            return text
    raise InvalidRequest(f'input[{place}]: must be a part such as {{"type": "text", "text": ...}}')


def _moderations(request_id: str, flagged: Flagged, found: list[list[FlaggedBy]]) -> Any:
    flagged.check_complete(found)
    labels, scores = flagged.answered.classifier.traits.labels, label_scores(flagged.answered)
    results = []
    for blank, flags, ranked in zip(flagged.blank, found, scores, strict=True):
        by = {each.label for each in flags}
        score_of = {each.label: 0.0 if blank else each.score for each in ranked}
        results.append(
            {
                "flagged": bool(by),
                "categories": {label: label in by for label in labels},
                "category_scores": {label: score_of[label] for label in labels},
                "category_applied_input_types": {label: ["text"] for label in labels},
            }
        )
    return {
        "id": f"modr-{request_id}",
        "model": flagged.answered.classifier.name,
        "results": results,
    }


MODERATIONS = Dialect(
    "guardrails",
    openai_error,
    OpenAIError,
    [
        Route(
            "POST",
            "/v1/moderations",
            moderate,
            "classify",
            ModerationRequest,
            tag="guardrails",
            shown=ModerationResponse,
        )
    ],
    statuses=OPENAI_STATUSES,
    words={INPUT: r"input\1", TRUNCATE: WINDOWS},
)
