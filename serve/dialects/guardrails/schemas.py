"""The JSON of guardrails: FMS and TrustyAI detectors, LiteLLM's generic guardrail."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, ConfigDict, Field

from serve.api.schemas.base import ResponseModel, SparseModel, examples
from serve.classifier.classify_request import MAX_LIST
from serve.policy.profile import Unchecked
from serve.validation import RequestModel


class GuardrailParameters(RequestModel):
    """Parameters of both kinds of guardrails; the fields are Offramp's own.

    Attributes:
        place: the field of the request that holds the parameters.
        reads_scores: whether the clients read scores and compare them with their own thresholds.
    """

    place: ClassVar[str] = "detector_params"
    reads_scores: ClassVar[bool] = True

    model: str | None = Field(default=None, description="As in /v1/classify.")
    profile: str | None = Field(default=None, description="A profile of the live policy.")
    exit: Any = Field(default=None, description="As in /v1/classify; instead of `profile`.")
    flag: Any = Field(default=None, description="As in /v1/classify. Default: the profile's.")
    threshold: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="Takes the place of each threshold of the flag.",
    )
    windows: Any = Field(default=None, description="As in /v1/classify. Default: the profile's.")
    special_tokens: Any = Field(
        default=None, description="As in /v1/classify. Default: the profile's, or else `text`."
    )
    timeout_ms: float | None = Field(default=None, description="As in /v1/classify.")
    priority: str | None = Field(default=None, description="As in /v1/classify.")


class DetectorRequest(RequestModel):
    """Texts for a detector."""

    model_config = examples(
        {"contents": ["The movie was awesome."], "detector_params": {"flag": {"negative": 0.8}}}
    )

    contents: list[str] = Field(max_length=MAX_LIST, fail_fast=True)
    detector_params: GuardrailParameters | None = None


class Detection(ResponseModel):
    """A label that reaches its threshold, or an entity of such a label."""

    start: int = Field(description="The first character of the text (0) or of the entity.")
    end: int = Field(description="The character after the last.")
    text: str
    detection: str = Field(description="The kind of model that has found it.")
    detection_type: str = Field(description="The label.")
    score: float


class DetectorError(ResponseModel):
    """An error as the clients of detectors read it."""

    code: int
    message: str


class LiteLLMParameters(GuardrailParameters):
    """Parameters of the guardrail's configuration at LiteLLM."""

    place: ClassVar[str] = "additional_provider_specific_params"
    reads_scores: ClassVar[bool] = False

    unchecked: Unchecked = Field(
        default=[],
        description="Fields and types of parts that may come although this server does not check "
        "them: `images`, `tools`, `tool_calls`, or the field or the type of a part that "
        "a refusal names.",
    )


def _check_parts(messages: list[Any]) -> list[Any]:
    contents = [each.get("content") for each in messages if isinstance(each, dict)]
    if sum(len(content) for content in contents if isinstance(content, list)) > MAX_LIST:
        raise ValueError(f"must have at most {MAX_LIST} parts in their contents")
    return messages


_Messages = Annotated[list[Any], Field(max_length=MAX_LIST), AfterValidator(_check_parts)]

_DESCRIBES = "Describes the call; not checked."


class LiteLLMRequest(RequestModel):
    """A call to a language model; fields that describe the call are not looked at.

    Other fields than these may be content, and are refused unless `unchecked` names them.
    """

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "examples": [
                {
                    "texts": ["The movie was awesome."],
                    "input_type": "request",
                    "additional_provider_specific_params": {"flag": {"negative": 0.8}},
                }
            ]
        },
    )

    texts: list[str] | None = Field(max_length=MAX_LIST, fail_fast=True)
    input_type: Literal["request", "response"]
    images: list[Any] | None = Field(default=None, description="Refused, unless `unchecked`.")
    tools: list[Any] | None = Field(default=None, description="Refused, unless `unchecked`.")
    tool_calls: list[Any] | None = Field(default=None, description="Refused, unless `unchecked`.")
    structured_messages: _Messages | None = Field(
        default=None,
        description="Texts in them that `texts` lacks are looked at too.",
    )
    additional_provider_specific_params: LiteLLMParameters | None = None
    litellm_call_id: Any = Field(default=None, description=_DESCRIBES)
    litellm_trace_id: Any = Field(default=None, description=_DESCRIBES)
    litellm_version: Any = Field(default=None, description=_DESCRIBES)
    model: Any = Field(default=None, description=_DESCRIBES)
    request_data: dict[str, Any] | None = Field(
        default=None,
        description="What LiteLLM knows of the caller, as `user_api_key_...`; not checked.",
    )
    request_headers: Any = Field(default=None, description=_DESCRIBES)


class LiteLLMResponse(SparseModel):
    """Whether the call may go on."""

    action: Literal["BLOCKED", "NONE"]
    blocked_reason: str | None = Field(default=None, description="Only if blocked.")
