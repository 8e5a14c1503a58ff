"""Base classes of the JSON that clients receive."""

from typing import Any

from pydantic import BaseModel, ConfigDict


class ResponseModel(BaseModel):
    """JSON that clients receive."""

    model_config = ConfigDict(frozen=True, json_schema_serialization_defaults_required=True)


class SparseModel(ResponseModel):
    """JSON that clients receive, in which fields with a default may be missing."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=False)


def examples(*bodies: dict[str, Any]) -> ConfigDict:
    """Return the setting of a schema that documents it by examples."""
    return ConfigDict(json_schema_extra={"examples": list(bodies)})
