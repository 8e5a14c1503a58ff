"""Base classes of the JSON schemas: requests are validated strictly, all are frozen."""

from typing import Any

from pydantic import BaseModel, ConfigDict


class RequestModel(BaseModel):
    """JSON that clients send: no unknown fields, no conversion between types."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class ResponseModel(BaseModel):
    """JSON that clients receive."""

    model_config = ConfigDict(frozen=True, json_schema_serialization_defaults_required=True)


class SparseModel(ResponseModel):
    """JSON that clients receive, in which fields with a default may be missing."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=False)


def examples(*bodies: dict[str, Any]) -> ConfigDict:
    """Return the setting of a schema that documents it by examples."""
    return ConfigDict(json_schema_extra={"examples": list(bodies)})
