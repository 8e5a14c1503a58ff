"""The content of a call to a language model, as LiteLLM's generic guardrail sends it.

A gateway lets pass what its guardrail does not flag. So the text of a field is looked at, or the
field has a value that is listed here, or it is empty and its name is known. Any other field is
refused, unless the gateway's configuration lets it pass unchecked.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import AfterValidator, ConfigDict, Field

from serve.api.choices import Locks
from serve.api.context import AppContext
from serve.api.request import Request
from serve.api.response import Response
from serve.api.route import INPUT, TRUNCATE, Dialect, Route
from serve.api.schemas import SparseModel
from serve.api.shown import short
from serve.classifier.classify_request import MAX_LIST
from serve.classifier.flagger import FlaggedBy
from serve.dialects.guardrails.flagging import (
    WINDOWS,
    DetectorError,
    Flagged,
    flag_texts,
    guardrail_error,
)
from serve.dialects.guardrails.parameters import GuardrailParameters
from serve.errors import InvalidRequest
from serve.policy.profile import Unchecked
from serve.validation import RequestModel

_MAX_REASONS: Final = 5

# Models read the names of speakers, and what they are told they have refused or thought before.
_TEXTS_OF_MESSAGE: Final = frozenset({"name", "refusal", "reasoning_content"})
_TEXTS_OF_PART: Final = frozenset({"text"})
# The values that other fields may hold.
_CACHED: Final = tuple({"type": "ephemeral", **ttl} for ttl in ({}, {"ttl": "5m"}, {"ttl": "1h"}))
_IN_MESSAGE: Final[Mapping[str, Collection[Any]]] = {
    "role": ("system", "developer", "user", "assistant", "tool", "function"),
    "type": ("message",),
    "cache_control": _CACHED,
}
_IN_PART: Final[Mapping[str, Collection[Any]]] = {
    "type": ("text", "input_text", "output_text"),
    "cache_control": _CACHED,
}
# The places of parts of a call that may pass unchecked.
_Place = Literal["field of a call", "field of a message", "field of a part", "type of a part"]
_CALL: Final[_Place] = "field of a call"
_MESSAGE: Final[_Place] = "field of a message"
_PART: Final[_Place] = "field of a part"
_TYPE: Final[_Place] = "type of a part"
# Names that stand for something in these places only; others do in all.
_PLACES: Final[Mapping[str, Collection[_Place]]] = {
    **dict.fromkeys(("tool_call_id", "function_call", "role", "name"), (_MESSAGE,)),
    **dict.fromkeys(("content", "type", "cache_control", "id"), (_MESSAGE, _PART)),
    "annotations": (_MESSAGE, _PART),
    "images": (_CALL, _MESSAGE),
    "tools": (_CALL,),
    "tool_calls": (_CALL, _MESSAGE),
    "text": (_PART,),
}
# The type of a part that passes where images do.
_IMAGE: Final = "image_url"
# Names of fields that may be empty: clients send them so. Other names could be a text themselves.
_MAY_BE_EMPTY: Final = {
    *_PLACES,
    *("audio", "refusal", "reasoning_content", "thinking_blocks", "provider_specific_fields"),
    *("image_url", "input_audio", "file", "logprobs"),
}
# LiteLLM describes the caller in fields that begin so; no model reads them.
_OF_CALLER: Final = "user_api_key_"
_MAX_QUOTED: Final = 64
# The field of a call that holds the parameters.
_PARAMETERS: Final = "additional_provider_specific_params"


class LiteLLMParameters(GuardrailParameters):
    """Parameters of the guardrail's configuration at LiteLLM."""

    prefix: ClassVar[str] = f"{_PARAMETERS}."
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


async def decide(context: AppContext, request: Request, body: LiteLLMRequest) -> Response:
    """Block a call if any of its texts is flagged, as LiteLLM's generic guardrail."""
    asked = body.additional_provider_specific_params or LiteLLMParameters()

    def texts(locks: Locks) -> list[str]:
        return texts_of(body, locks.unchecked(asked.unchecked))

    return await flag_texts(context, request, asked, texts, _decision)


def _decision(flagged: Flagged, found: list[list[FlaggedBy]]) -> dict[str, Any]:
    reasons = [
        f"text {place}: {each.label} {short(each.score)}"
        for place, of_text in enumerate(found, 1)
        for each in of_text
    ]
    if not reasons:
        flagged.check_complete(found)
        return {"action": "NONE"}
    listed = "; ".join(reasons[:_MAX_REASONS]) + ("; ..." if len(reasons) > _MAX_REASONS else "")
    return {"action": "BLOCKED", "blocked_reason": f"flagged by the classifier: {listed}"}


def texts_of(body: LiteLLMRequest, unchecked: Collection[str]) -> list[str]:
    """Return all texts of a call, those of its structured messages included, each once there.

    Raises:
        InvalidRequest: there is something else in it, which may not pass unchecked.
    """
    texts = list(body.texts or [])
    known = set(texts)
    others = {name for name in ("images", "tools", "tool_calls") if getattr(body, name)}
    others |= {*(body.model_extra or ())}
    others |= {name for name in body.request_data or () if not name.startswith(_OF_CALLER)}
    _refuse(others, _CALL, unchecked)
    for message in body.structured_messages or ():
        for text in _of_message(message, unchecked):
            if text not in known:
                known.add(text)
                texts.append(text)
    return texts


def _of_message(message: Any, unchecked: Collection[str]) -> Iterator[str]:
    if not isinstance(message, dict):
        raise InvalidRequest("structured_messages: must be a list of objects")
    others = dict(message)
    content = others.pop("content", None)
    for part in content if isinstance(content, list) else [content]:
        yield from _of_part(part, unchecked)
    yield from _of_fields(others, _MESSAGE, unchecked)


def _of_part(part: Any, unchecked: Collection[str]) -> Iterator[str]:
    """Return the texts of a message's content, or of a part of it."""
    if isinstance(part, str):
        yield part
    elif isinstance(part, dict):
        kind = part.get("type")
        if isinstance(kind, str) and kind and kind not in _IN_PART["type"]:
            if kind == _IMAGE:
                _refuse(["images"], _MESSAGE, unchecked)
            else:
                _refuse([kind], _TYPE, unchecked)
            part = {"text": part.get("text")}  # the rest passes unchecked with its type
        yield from _of_fields(part, _PART, unchecked)
    elif part:
        _refuse(["content"], _MESSAGE, unchecked)


def _of_fields(
    fields: Mapping[str, Any], place: _Place, unchecked: Collection[str]
) -> Iterator[str]:
    """Return the texts of a message or a part; its other fields hold what is allowed, or nothing.

    Raises:
        InvalidRequest: there is something else in it, which may not pass unchecked.
    """
    texts, allowed = (
        (_TEXTS_OF_MESSAGE, _IN_MESSAGE) if place == _MESSAGE else (_TEXTS_OF_PART, _IN_PART)
    )
    others = []
    for name, value in fields.items():
        if name in texts and isinstance(value, str):
            yield value
        elif value not in allowed.get(name, ()) if value else name not in _MAY_BE_EMPTY:
            others.append(name)
    _refuse(others, place, unchecked)


def _refuse(names: Collection[str], place: _Place, unchecked: Collection[str]) -> None:
    """Refuse what may not pass in its place."""
    for name in sorted(names):
        free = place in _PLACES.get(name, (place,))
        if free and name in unchecked:
            continue
        shown = name[:_MAX_QUOTED]
        raise InvalidRequest(
            f"{shown}: this server looks at texts only; "
            + (
                f'to let {shown} pass unchecked, put "unchecked": ["{shown}"] into the profile, or '
                f"into {_PARAMETERS} if the policy lets requests choose"
                if free
                else f"leave out {shown} as {place}"
            )
        )


LITELLM = Dialect(
    "guardrails",
    guardrail_error,
    DetectorError,
    [
        Route(
            "POST",
            "/beta/litellm_basic_guardrail_api",
            decide,
            "classify",
            LiteLLMRequest,
            tag="guardrails",
            shown=LiteLLMResponse,
        )
    ],
    words={INPUT: r"texts\1", TRUNCATE: WINDOWS},
)
