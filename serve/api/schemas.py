"""What several answers have in JSON: base classes, errors, rules."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, WrapSerializer

from serve.rules import ExitRule, Rule


class ResponseModel(BaseModel):
    """JSON that clients receive."""

    model_config = ConfigDict(frozen=True, json_schema_serialization_defaults_required=True)


class SparseModel(ResponseModel):
    """JSON that clients receive, in which fields with a default may be missing."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=False)


def examples(*bodies: dict[str, Any]) -> ConfigDict:
    """Return the setting of a schema that documents it by examples."""
    return ConfigDict(json_schema_extra={"examples": list(bodies)})


class Problem(ResponseModel):
    """What went wrong."""

    code: str
    message: str


class ErrorBody(ResponseModel):
    """The body of every answer that is not 2xx."""

    model_config = examples(
        {
            "error": {
                "code": "invalid_request",
                "message": "exit.threshold: must be greater than or equal to 0, not -1",
            }
        }
    )

    error: Problem


class ErrorText(ResponseModel):
    """An error of several dialects."""

    error: str


def _as_written(rule: Rule, serialize: SerializerFunctionWrapHandler):  # type: ignore[no-untyped-def]
    # Without a return type, the JSON schema stays that of a rule.
    fields: dict[str, Any] = serialize(rule)
    return {name: value for name, value in fields.items() if value is not None}


# An exit rule as a client would write it.
ShownRule = Annotated[ExitRule, WrapSerializer(_as_written)]
