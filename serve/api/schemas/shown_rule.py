"""An exit rule in an answer, as a client would write it."""

from typing import Annotated, Any

from pydantic import SerializerFunctionWrapHandler, WrapSerializer

from serve.rules import ExitRule, Rule


def _as_written(rule: Rule, serialize: SerializerFunctionWrapHandler):  # type: ignore[no-untyped-def]
    # Without a return type, the JSON schema stays that of a rule.
    fields: dict[str, Any] = serialize(rule)
    return {name: value for name, value in fields.items() if value is not None}


ShownRule = Annotated[ExitRule, WrapSerializer(_as_written)]
