"""POST /v1/classify."""

from dataclasses import replace

from serve.api.classification import Asked, read_fields
from serve.api.context import AppContext
from serve.api.dial import has_dial
from serve.api.dialect import OWN
from serve.api.documented import classify_errors
from serve.api.endpoint import Endpoint, classifying
from serve.api.record import RequestRecord
from serve.api.schemas.error import ErrorBody
from serve.api.schemas.request import ClassifyRequest
from serve.dialects.v1.answer import write
from serve.dialects.v1.schemas import ClassifyResponse


def classify(context: AppContext, record: RequestRecord, body: ClassifyRequest) -> Asked:
    """Classify one or more texts, each leaving the model when its exit rule allows."""
    if has_dial(record.headers):
        fields = body.model_dump(by_alias=True, exclude_unset=True)
        body = read_fields(fields, record.headers)
    return Asked(body, write)


V1 = replace(
    OWN,
    endpoints=(
        Endpoint(
            "/v1/classify",
            ClassifyRequest,
            classifying(classify),
            {
                "tags": ["classify"],
                "response_model": ClassifyResponse,
                "responses": classify_errors(ErrorBody),
            },
        ),
    ),
)
