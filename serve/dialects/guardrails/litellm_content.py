"""The content of a call to a language model, as LiteLLM's generic guardrail sends it.

A gateway lets pass what its guardrail does not flag. So what this server cannot look at is refused,
unless the gateway's configuration says that it may pass unchecked.
"""

from collections.abc import Collection, Iterator
from typing import Any, Final

from serve.dialects.guardrails.schemas import LiteLLMParameters, LiteLLMRequest
from serve.errors import InvalidRequest

# Of a message, these are no content, or are looked at.
_MESSAGE: Final = {"role", "content", "name", "id", "type", "tool_call_id", "cache_control"}
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
    _refuse(others, asked.unchecked)
    for message in body.structured_messages or ():
        if not isinstance(message, dict):
            raise InvalidRequest("structured_messages: must be a list of objects")
        _refuse({n for n, value in message.items() if value and n not in _MESSAGE}, asked.unchecked)
        for text in _content(message.get("content"), asked.unchecked):
            if text not in known:
                known.add(text)
                texts.append(text)
    return texts


def _content(content: Any, unchecked: Collection[str]) -> Iterator[str]:
    """Return the texts of a message's content: a text, or a list of typed parts."""
    if content is None:
        return
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, str):
            yield part
        elif isinstance(part, dict) and isinstance(part.get("text"), str):
            yield part["text"]
        else:
            kind = part.get("type") if isinstance(part, dict) else None
            _refuse(["images" if kind == "image_url" else str(kind or "content")], unchecked)


def _refuse(names: Collection[str], unchecked: Collection[str]) -> None:
    for name in sorted(set(names) - set(unchecked)):
        shown = name[:_MAX_QUOTED]
        raise InvalidRequest(
            f"{shown}: this server looks at texts only; to let {shown} pass unchecked, put "
            f'"unchecked": ["{shown}"] into {LiteLLMParameters.place}'
        )
