"""The JSON of Text Embeddings Inference (TEI), as far as it is about classifiers."""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag
from pydantic.config import JsonDict

from serve.api.schemas import ResponseModel, examples
from serve.classifier.classify_request import MAX_LIST
from serve.validation import RequestModel

_TEXT: JsonDict = {"type": "string"}
_TEXT_OR_PAIR: JsonDict = {"type": "array", "items": _TEXT, "minItems": 1, "maxItems": 2}


class TeiRequest(RequestModel):
    """One text or pair, or a batch of them, and how to answer."""

    model_config = examples(
        {"inputs": "The movie was awesome."},
        {"inputs": ["A dog runs.", "An animal moves."]},
        {"inputs": [["A dog runs.", "An animal moves."], ["The movie was awesome."]]},
    )

    inputs: Any = Field(
        description="A text; or a list of one text; or a list of two, which are ONE pair; or a "
        "batch: a list of such lists.",
        json_schema_extra={
            "anyOf": [
                _TEXT,
                _TEXT_OR_PAIR,
                {"type": "array", "items": _TEXT_OR_PAIR, "minItems": 1, "maxItems": MAX_LIST},
            ]
        },
    )
    truncate: bool | None = Field(
        default=None, description="Cut texts that are too long. Default: false."
    )
    truncation_direction: Literal["Left", "Right", "left", "right"] | None = Field(
        default=None, description="Texts are cut at the end only: Left is refused with truncate."
    )
    raw_scores: bool | None = Field(default=None, description="Scores are logits.")


class TeiPrediction(ResponseModel):
    """A label and its score."""

    score: float | None
    label: str


_Texts = Annotated[
    Annotated[str, Tag("<text>")]
    | Annotated[list[str], Field(min_length=1, max_length=MAX_LIST, fail_fast=True), Tag("<list>")],
    Discriminator(
        lambda value: "<list>" if isinstance(value, list) else "<text>",
    ),
]


class TeiTokenizeRequest(RequestModel):
    """Texts to tokenize."""

    inputs: _Texts = Field(description="A text or a list of texts.")
    add_special_tokens: bool | None = Field(default=None, description="Default: true.")
    prompt_name: str | None = Field(default=None, description="Refused: there are no prompts.")


class TeiToken(ResponseModel):
    """A token; `start` and `stop` are characters of the text, null for special tokens."""

    id: int
    text: str
    special: bool
    start: int | None
    stop: int | None


class TeiError(ResponseModel):
    """An error as TEI's clients read it."""

    error: str
    error_type: Literal["Unhealthy", "Backend", "Overloaded", "Validation"]
