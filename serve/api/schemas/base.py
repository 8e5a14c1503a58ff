"""Base classes of the JSON schemas: requests are validated strictly, all are frozen."""

from pydantic import BaseModel, ConfigDict


class RequestModel(BaseModel):
    """JSON that clients send: no unknown fields, no conversion between types."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class ResponseModel(BaseModel):
    """JSON that clients receive."""

    model_config = ConfigDict(frozen=True, json_schema_serialization_defaults_required=True)
