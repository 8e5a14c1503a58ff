"""KServe's protocol V1, as `kserve.InferenceRESTClient` and gateways in front of it speak it.

`GET /v1/models/{model}`, by which its clients see whether a model is ready, is our own route.
"""

import re
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from serve.api.classification import classify, read_fields, respond
from serve.api.context import AppContext
from serve.api.dial import exit_headers
from serve.api.dialect import INPUT, TRUNCATE, Dialect
from serve.api.label_scores import check_labels_texts, label_scores
from serve.api.response_builder import exit_report
from serve.api.routes.classify import classify_errors
from serve.api.routes.hugging_face import error_text
from serve.api.schemas.hugging_face import ErrorText
from serve.api.schemas.kserve import KServeParameters, KServeRequest, KServeResponse

_PATHS = re.compile(r"/v1/models/[^/]*:predict")
_WORDS = {INPUT: r"instances\1", TRUNCATE: '"parameters": {"truncate": true}'}
KSERVE = Dialect("kserve", _PATHS, error_text, classifies=_PATHS, words=_WORDS)

# What the request calls fields of ours.
_NAMES = {
    "inputs": "instances",
    "truncate": "parameters.truncate",
    "exit": "parameters.exit",
    "timeout_ms": "parameters.timeout_ms",
    "priority": "parameters.priority",
}


def add_kserve_route(app: FastAPI, context: AppContext) -> None:
    """Add the route that predicts."""

    @app.post(
        "/v1/models/{model}:predict",
        tags=["KServe"],
        response_model=KServeResponse,
        responses=classify_errors(ErrorText),
    )
    async def predict(request: Request, body: KServeRequest, model: str) -> Response:
        """Classify instances, in the form of KServe's protocol V1."""
        check_labels_texts(context.catalog.find(model))
        asked = body.parameters or KServeParameters()
        fields = {"model": model, "inputs": body.instances, **dict(asked)}
        answered = await classify(context, request, read_fields(fields, request.headers, _NAMES))
        classifier, classified = answered.classifier, answered.classified

        def make() -> Any:
            return {
                "predictions": [
                    {each.label: each.score for each in row} for row in label_scores(answered)
                ],
                "exits": [
                    exit_report(classifier.bundle.manifest, each) for each in classified.answers
                ],
            }

        return await respond(answered, make, exit_headers(classifier, classified))
