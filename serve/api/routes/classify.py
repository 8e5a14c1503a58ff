"""POST /v1/classify."""

from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from serve.api.classification import classify as classify_inputs
from serve.api.classification import read_fields, respond
from serve.api.context import AppContext
from serve.api.dial import has_dial
from serve.api.request_body import body_errors
from serve.api.response_builder import build_response
from serve.api.schemas.base import ResponseModel
from serve.api.schemas.error import ErrorBody
from serve.api.schemas.request import ClassifyRequest
from serve.api.schemas.response import ClassifyResponse


def classify_errors(model: type[ResponseModel]) -> dict[int | str, dict[str, Any]]:
    """Return what OpenAPI says of the errors of a classification, in a dialect's shape."""
    said = {
        403: "The policy does not allow this exit.",
        404: "No such model.",
        422: "The request asks for something that cannot be.",
        429: "The queue is full, or the key has taken its share.",
        500: "The model failed on this input.",
        503: "The server is starting or stopping.",
        504: "The timeout passed before every text had come by an exit.",
    }
    errors: dict[int | str, dict[str, Any]] = {
        status: {"model": model, "description": description} for status, description in said.items()
    }
    errors[429]["headers"] = {
        "Retry-After": {
            "description": "In seconds.",
            "required": True,
            "schema": {"type": "integer", "minimum": 1},
        }
    }
    return {
        "default": {"model": model, "description": "Any other error."},
        **body_errors(model),
        **errors,
    }


def add_classify_route(app: FastAPI, context: AppContext) -> None:
    """Add the route that classifies."""

    @app.post(
        "/v1/classify",
        tags=["classify"],
        response_model=ClassifyResponse,
        responses=classify_errors(ErrorBody),
    )
    async def classify(request: Request, body: ClassifyRequest) -> Response:
        """Classify one or more texts, each leaving the model when its exit rule allows."""
        if has_dial(request.headers):
            fields = body.model_dump(by_alias=True, exclude_unset=True)
            body = read_fields(fields, request.headers)
        answered = await classify_inputs(context, request, body)
        return await respond(answered, lambda: build_response(*answered))
