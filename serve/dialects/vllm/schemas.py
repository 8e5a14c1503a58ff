"""The JSON of vLLM's /classify."""

from typing import Any, Literal

from pydantic import Field
from pydantic.config import JsonDict

from serve.api.exit_report import ExitReport
from serve.api.schemas.base import ResponseModel, examples
from serve.classifier.classify_request import MAX_LIST
from serve.validation import RequestModel

_TEXT: JsonDict = {"type": "string"}
_IDS: JsonDict = {"type": "array", "items": {"type": "integer"}}
_PAIR: JsonDict = {
    "type": "object",
    "properties": {"text": _TEXT, "text_pair": _TEXT},
    "required": ["text"],
}


class VllmRequest(RequestModel):
    """Texts or token ids, and how to answer; `exit` and `timeout_ms` are Offramp's own."""

    model_config = examples(
        {"input": "The movie was awesome."},
        {"input": ["The movie was awesome.", "You are good at messing up."]},
    )

    model: str | None = Field(
        default=None, description="May be left out when only one model is served."
    )
    input: Any = Field(
        description="A text, a list of texts, token ids with special tokens, or a list of those. "
        "Offramp also takes an object with text and text_pair in the place of a text.",
        json_schema_extra={
            "anyOf": [
                _TEXT,
                _PAIR,
                _IDS,
                {
                    "type": "array",
                    "items": {"anyOf": [_TEXT, _PAIR, _IDS]},
                    "maxItems": MAX_LIST,
                },
            ]
        },
    )
    user: str | None = Field(default=None, description="Has no effect, as in vLLM.")
    truncate_prompt_tokens: int | None = Field(
        default=None,
        ge=-1,
        description="-1 cuts texts to the model's length, and so does any number from there on. "
        "Smaller numbers are refused. Token ids are never cut.",
    )
    truncation_side: Literal["left", "right"] | None = Field(
        default=None, description="Texts are cut at the end only: left is refused where they are."
    )
    padding: Literal["do_not_pad"] | None = Field(
        default=None, description="Texts are not padded to the model's length."
    )
    add_special_tokens: bool | None = Field(
        default=None, description="False is refused: the models need them."
    )
    use_activation: bool | None = Field(
        default=None, description="False: `probs` are logits. Default: true."
    )
    activation: bool | None = Field(default=None, description="Older name of use_activation.")
    request_id: str | None = Field(
        default=None, max_length=128, description="Comes back in `id`, after classify-."
    )
    priority: int | None = Field(
        default=None, description="Below 0: before others; above 0: after them."
    )
    cache_salt: str | None = Field(
        default=None, max_length=1024, description="Has no effect: no answer is cached."
    )
    exit: Any = Field(default=None, description="As in /v1/classify: target, rule or profile.")
    timeout_ms: float | None = Field(default=None, description="As in /v1/classify.")


class VllmClassification(ResponseModel):
    """The answer for one input."""

    index: int
    label: str
    probs: list[float | None] = Field(
        description="Probabilities by label id, of several labels each for itself; for a "
        "regression its value, or the sigmoid of it if the model's config states no problem_type "
        "regression."
    )
    num_classes: int
    exit: ExitReport


class VllmUsage(ResponseModel):
    """Tokens of all inputs, special tokens included."""

    prompt_tokens: int
    total_tokens: int
    completion_tokens: Literal[0]


class VllmResponse(ResponseModel):
    """The answers, in the order of the inputs."""

    id: str
    object: Literal["list"]
    created: int = Field(description="In seconds since 1970.")
    model: str
    data: list[VllmClassification]
    usage: VllmUsage


class OpenAIProblem(ResponseModel):
    """The error that a request got."""

    message: str
    type: str
    param: None
    code: int


class OpenAIError(ResponseModel):
    """An error as OpenAI's clients read it."""

    error: OpenAIProblem
