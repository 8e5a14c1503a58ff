"""The content of a call to a language model, as LiteLLM's generic guardrail sends it.

A gateway lets pass what its guardrail does not flag. So each field is one whose text is looked at,
or has a value that is listed here, or is empty. What is none of these is refused, unless the
gateway's configuration names it as something that may pass unchecked.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from serve.dialects.guardrails.schemas import LiteLLMParameters, LiteLLMRequest
from serve.errors import InvalidRequest

# Models read the names of speakers, and what they are told they have refused or thought before.
_TEXTS_OF_MESSAGE: Final = frozenset({"name", "refusal", "reasoning_content"})
_TEXTS_OF_PART: Final = frozenset({"text"})
# What other fields may hold.
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
_IMAGES: Final = {"image_url": "images"}
# What LiteLLM says of the caller, and no model reads.
_OF_CALLER: Final = "user_api_key_"
_MAX_QUOTED: Final = 64


def texts_of(body: LiteLLMRequest) -> list[str]:
    """Return all texts of a call, those of its structured messages included, each once there.

    Raises:
        InvalidRequest: there is something else in it, which may not pass unchecked.
    """
    asked = body.additional_provider_specific_params or LiteLLMParameters()
    texts = list(body.texts or [])
    known = set(texts)
    others = {name for name in ("images", "tools", "tool_calls") if getattr(body, name)}
    others |= {name for name, value in (body.model_extra or {}).items() if value}
    others |= {name for name in body.request_data or () if not name.startswith(_OF_CALLER)}
    _refuse(others, asked.unchecked)
    for message in body.structured_messages or ():
        for text in _of_message(message, asked.unchecked):
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
    yield from _of_fields(others, _TEXTS_OF_MESSAGE, _IN_MESSAGE, unchecked)


def _of_part(part: Any, unchecked: Collection[str]) -> Iterator[str]:
    """Return the texts of a message's content, or of a part of it."""
    if isinstance(part, str):
        yield part
    elif isinstance(part, dict):
        kind = part.get("type")
        if isinstance(kind, str) and kind and kind not in _IN_PART["type"]:
            _refuse([_IMAGES.get(kind, kind)], unchecked)
            part = {"text": part.get("text")}  # the rest passes unchecked with its type
        yield from _of_fields(part, _TEXTS_OF_PART, _IN_PART, unchecked)
    elif part:
        _refuse(["content"], unchecked)


def _of_fields(
    fields: Mapping[str, Any],
    texts: Collection[str],
    allowed: Mapping[str, Collection[Any]],
    unchecked: Collection[str],
) -> Iterator[str]:
    """Return the texts of a message or a part; its other fields hold what is allowed, or nothing.

    Raises:
        InvalidRequest: there is something else in it, which may not pass unchecked.
    """
    others = []
    for name, value in fields.items():
        if name in texts and isinstance(value, str):
            yield value
        elif value and value not in allowed.get(name, ()):
            others.append(name)
    _refuse(others, unchecked)


def _refuse(names: Collection[str], unchecked: Collection[str]) -> None:
    for name in sorted(set(names) - set(unchecked)):
        shown = name[:_MAX_QUOTED]
        raise InvalidRequest(
            f"{shown}: this server looks at texts only; to let {shown} pass unchecked, put "
            f'"unchecked": ["{shown}"] into {LiteLLMParameters.place}'
        )
