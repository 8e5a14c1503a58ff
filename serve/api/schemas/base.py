"""What every JSON shape of the HTTP API has: strict where it comes in, frozen everywhere."""

from pydantic import BaseModel, ConfigDict


class RequestModel(BaseModel):
    """What clients send: nothing unknown, nothing converted."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class ResponseModel(BaseModel):
    """What clients are told."""

    model_config = ConfigDict(frozen=True, json_schema_serialization_defaults_required=True)
