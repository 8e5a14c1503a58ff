"""What of a call to a language model LiteLLM's guardrail looks at, and that nothing passes by."""

import copy
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from serve.dialects.guardrails.litellm import LiteLLMRequest, texts_of
from serve.dialects.registry import choose_dialects
from serve.dialects.sagemaker import Invocation
from serve.errors import InvalidRequest

HARMFUL = "<harmful>"
PARAMETERS = "additional_provider_specific_params"
# Fields that describe the call; LiteLLM does not pass them to the model.
DESCRIBING = {"litellm_call_id", "litellm_trace_id", "litellm_version", "model", "request_headers"}

CALL: dict[str, Any] = {
    "texts": ["w1"],
    "input_type": "request",
    "images": None,
    "tools": [],
    "tool_calls": None,
    "model": "gpt",
    "request_data": {"user_api_key_hash": "w9"},
    "request_headers": {"user-agent": "w8"},
    "structured_messages": [
        {"role": "system", "content": "w1", "name": "w2"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "w3", "cache_control": {"type": "ephemeral"}},
                {"type": "image_url", "image_url": {"url": "w4"}},
                {"type": "input_audio", "input_audio": {"data": "w5"}},
                {"type": "tool_result", "content": [{"type": "text", "text": "w6"}]},
                "w6",
            ],
        },
        {"role": "assistant", "content": None, "refusal": None, "tool_calls": []},
    ],
}
KINDS = ("text", "input_text", "image_url", "input_audio", "file", "tool_result", "thinking")
NAMES = (
    *("role", "content", "name", "id", "type", "text", "tool_call_id", "cache_control", "input"),
    *("refusal", "reasoning_content", "thinking", "annotations", "audio", "images", "arguments"),
    *("function_call", "tool_calls", "tools", "input_audio", "image_url", "file", "prompt"),
    *("structured_messages", "texts", "model", "input_type", "request_data", "ttl", "x"),
)


def beside(inner: Any, name: str, kind: str | None) -> dict[str, Any]:
    return {**({"type": kind} if kind else {}), name: inner}


wrapped = st.recursive(
    st.just(HARMFUL),
    lambda inner: st.one_of(
        inner.map(lambda each: [each]),
        st.builds(beside, inner, st.sampled_from(NAMES), st.sampled_from((None, *KINDS))),
    ),
    max_leaves=4,
)


def containers(node: Any) -> Iterator[Any]:
    """Yield every object and list of a document."""
    if isinstance(node, dict | list):
        yield node
        for inner in node.values() if isinstance(node, dict) else node:
            yield from containers(inner)


def seen_in(call: dict[str, Any]) -> list[str]:
    """Return the texts of a call, whose own `unchecked` may pass."""
    body = LiteLLMRequest.model_validate(call)
    asked = body.additional_provider_specific_params
    return texts_of(body, asked.unchecked if asked else ())


def path(node: Any) -> list[str] | None:
    """Return the way to the harmful text: the names of fields, and the types of parts."""
    if node == HARMFUL:
        return []
    if isinstance(node, list):
        return next((found for found in map(path, node) if found is not None), None)
    for name, inner in node.items() if isinstance(node, dict) else ():
        if (found := path(inner)) is not None:
            kind = str(node.get("type", name))
            return [name, "images" if kind == "image_url" else kind, *found]
    return None


@given(
    place=st.integers(0, 100),
    name=st.sampled_from(NAMES),
    at=st.integers(0, 5),
    harmful=wrapped,
    unchecked=st.sets(st.sampled_from((*NAMES, *KINDS)), max_size=4),
)
def test_a_text_anywhere_is_looked_at_or_refused_or_in_what_passes_unchecked(
    place: int, name: str, at: int, harmful: Any, unchecked: set[str]
) -> None:
    call = copy.deepcopy(CALL)
    found = list(containers(call))
    chosen = found[place % len(found)]
    if isinstance(chosen, dict):
        chosen[name] = harmful
    else:
        chosen.insert(at, harmful)
    allowed = {"images", "input_audio", "tool_result", *unchecked}
    call[PARAMETERS] = {"unchecked": sorted(allowed)}
    try:
        seen = seen_in(call)
    except (InvalidRequest, ValidationError):
        return
    way = path(call)
    assert way is None or HARMFUL in seen or allowed & set(way) or way[0] in DESCRIBING


TEXT = {"type": "text", "text": ""}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tools", {"content": [{"type": "tools", "x": HARMFUL}]}),
        ("tools", {"content": [{**TEXT, "tools": HARMFUL}]}),
        ("tools", {"tools": HARMFUL}),
        ("images", {"content": [{"type": "images", "x": HARMFUL}]}),
        ("tool_calls", {"content": [{"type": "tool_calls", "x": HARMFUL}]}),
        ("tool_call_id", {"content": [{"type": "tool_call_id", "x": HARMFUL}]}),
        ("content", {"content": [{"type": "content", "x": HARMFUL}]}),
    ],
)
def test_a_listed_name_frees_only_what_it_names(name: str, message: Any) -> None:
    call = {"texts": [], "input_type": "request", "structured_messages": [message]}
    call[PARAMETERS] = {"unchecked": [name]}
    with pytest.raises(InvalidRequest, match=f"^{name}: "):
        seen_in(call)


@pytest.mark.parametrize("empty", [None, "", 0, {}])
@pytest.mark.parametrize("place", ["call", "caller", "message", "part", "cache_control"])
def test_a_text_as_the_name_of_an_empty_field_is_refused(place: str, empty: Any) -> None:
    places: dict[str, dict[str, Any]] = {"cache_control": {"type": "ephemeral"}, "caller": {}}
    places["part"] = {**TEXT, "cache_control": places["cache_control"]}
    places["message"] = {"role": "user", "content": [places["part"]], "tool_calls": empty}
    places["call"] = {"texts": [], "input_type": "request", "request_data": places["caller"]}
    places["call"]["structured_messages"] = [places["message"]]
    assert seen_in(places["call"]) == [""]
    places[place][HARMFUL] = empty
    with pytest.raises(InvalidRequest, match=f"^({HARMFUL}|cache_control): "):
        seen_in(places["call"])


@pytest.mark.parametrize(
    ("refused", "message"),
    [
        (
            "input_audio",
            {"content": [{**TEXT, "type": "input_audio", "input_audio": {"data": "x"}}]},
        ),
        ("input_audio", {"content": [{**TEXT, "input_audio": {"data": "x"}}]}),
        ("images", {"content": [{**TEXT, "type": "image_url", "image_url": {"url": "x"}}]}),
        ("file", {"content": [{**TEXT, "type": "file", "file": {"file_data": "x"}}]}),
        ("tool_result", {"content": [{**TEXT, "type": "tool_result", "content": [TEXT]}]}),
        ("content", {"content": [{**TEXT, "content": "x"}]}),
        ("text", {"content": [{"type": "text", "text": {"value": "x"}}]}),
        ("type", {"content": [{"type": ["x"], "text": ""}]}),
        ("cache_control", {"content": [{**TEXT, "cache_control": {"type": "x"}}]}),
        ("cache_control", {"cache_control": {"type": "ephemeral", "x": "x"}}),
        ("name", {"name": ["x"]}),
        ("id", {"id": "x"}),
        ("tool_call_id", {"tool_call_id": "x"}),
        ("type", {"type": "x"}),
        ("role", {"role": "x"}),
        ("annotations", {"annotations": ["x"]}),
    ],
)
def test_what_is_not_looked_at_is_refused_by_its_name(refused: str, message: Any) -> None:
    call = {"texts": [], "input_type": "request", "structured_messages": [message]}
    with pytest.raises(InvalidRequest, match=f"^{refused}: "):
        seen_in(call)
    call[PARAMETERS] = {"unchecked": [refused]}
    assert seen_in(call) in ([], [""])


def test_names_refusals_and_thoughts_are_texts_and_so_is_one_beside_an_unchecked_part() -> None:
    image = {"type": "image_url", "image_url": {"url": "x"}, "text": "w4"}
    message = {
        "role": "assistant",
        "type": "message",
        "name": "w1",
        "refusal": "w2",
        "reasoning_content": "w3",
        "content": [image, {"text": "w5"}],
        "tool_calls": None,
    }
    call = {"texts": ["w5"], "input_type": "response", "structured_messages": [message]}
    call[PARAMETERS] = {"unchecked": ["images"]}
    assert seen_in(call) == ["w5", "w4", "w1", "w2", "w3"]


def schemas_in(kind: Any) -> Iterator[type[BaseModel]]:
    """Yield a schema and those of its fields."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind
    inner = [f.annotation for f in getattr(kind, "model_fields", {}).values()] or get_args(kind)
    for each in inner:
        yield from schemas_in(each)


def test_no_other_request_may_have_fields_that_nothing_looks_at() -> None:
    routes = [each for dialect in choose_dialects(["all"]) for each in dialect.routes]
    found = {schema for each in routes for schema in schemas_in(each.schema)}
    assert len(found) > 15
    others = {schema for schema in found if schema.model_config.get("extra") != "forbid"}
    assert others == {LiteLLMRequest, Invocation}  # of the latter each kind forbids them


def test_only_what_litellm_knows_of_the_caller_may_come_with_a_call() -> None:
    known = {"user_api_key_hash": "x", "user_api_key_alias": None}
    call = {"texts": [], "input_type": "request", "request_data": known}
    assert seen_in(call) == []
    call["request_data"] = {"messages": ["x"]}
    with pytest.raises(InvalidRequest, match=r"^messages: "):
        seen_in(call)
