"""POST /v1/classify."""

from dataclasses import replace

from serve.api.classify import read_fields, respond
from serve.api.context import AppContext
from serve.api.dial import has_dial
from serve.api.dialect import OWN
from serve.api.documented import classify_errors
from serve.api.request import Request
from serve.api.response import Response
from serve.api.route import Route
from serve.api.schemas.error import ErrorBody
from serve.classifier.classify_request import ClassifyRequest
from serve.dialects.v1.answer import write
from serve.dialects.v1.schemas import ClassifyResponse


async def classify(context: AppContext, request: Request, body: ClassifyRequest) -> Response:
    """Classify one or more texts, each leaving the model when its exit rule allows."""
    if has_dial(request.headers):
        fields = body.model_dump(by_alias=True, exclude_unset=True)
        body = read_fields(fields, request.headers)
    return await respond(context, request, body, write)


_OPTIONS = {
    "tags": ["classify"],
    "response_model": ClassifyResponse,
    "responses": classify_errors(ErrorBody),
}

V1 = replace(
    OWN,
    routes=[
        Route("POST", "/v1/classify", classify, "classify", ClassifyRequest, documented=_OPTIONS)
    ],
)
