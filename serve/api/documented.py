"""What OpenAPI says of the errors of a route."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from serve.api.schemas.error import ErrorBody


def errors(
    said: Mapping[int, str], model: type[BaseModel] = ErrorBody
) -> dict[int | str, dict[str, Any]]:
    """Return what OpenAPI says of errors by their status, in a dialect's shape."""
    return {status: {"model": model, "description": text} for status, text in said.items()}


def body_errors(model: type[BaseModel] = ErrorBody) -> dict[int | str, dict[str, Any]]:
    """Return what OpenAPI says of the errors of a body, in a dialect's shape."""
    said = {
        400: "The body is not JSON.",
        413: "The body is too large.",
        415: "The body is not declared as JSON, or is compressed.",
    }
    return errors(said, model)


def classify_errors(model: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    """Return what OpenAPI says of the errors of a classification, in a dialect's shape."""
    said = {
        403: "The policy does not allow this exit.",
        404: "No such model.",
        422: "The request asks for something that cannot be.",
        429: "The queue is full, or the key has taken its share.",
        500: "The model failed on this input.",
        503: "The server is starting or stopping.",
        504: "The timeout passed before every text had reached an exit.",
    }
    own = errors(said, model)
    own[429]["headers"] = {
        "Retry-After": {
            "description": "In seconds.",
            "required": True,
            "schema": {"type": "integer", "minimum": 1},
        }
    }
    return {
        "default": {"model": model, "description": "Any other error."},
        **body_errors(model),
        **own,
    }
