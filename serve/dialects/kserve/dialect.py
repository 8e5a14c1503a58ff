"""KServe's protocol V1, as `kserve.InferenceRESTClient` and gateways in front of it speak it.

`GET /v1/models/{model}`, by which its clients see whether a model is ready, is our own route.
"""

import re

from serve.api.classification import Asked, Classification, Reply, read_fields
from serve.api.context import AppContext
from serve.api.dialect import INPUT, TRUNCATE, Dialect, error_text
from serve.api.documented import classify_errors
from serve.api.endpoint import Endpoint, classifying
from serve.api.exit_report import exit_headers, exit_report
from serve.api.json_encoding import to_json
from serve.api.model_choice import model_for
from serve.api.record import RequestRecord
from serve.api.schemas.error import ErrorText
from serve.api.scores import check_labels_texts, label_scores
from serve.dialects.kserve.schemas import KServeParameters, KServeRequest, KServeResponse

# What the request calls fields of ours.
_NAMES = {
    "inputs": "instances",
    "truncate": "parameters.truncate",
    "exit": "parameters.exit",
    "timeout_ms": "parameters.timeout_ms",
    "priority": "parameters.priority",
}


def predict(context: AppContext, record: RequestRecord, body: KServeRequest) -> Asked:
    """Classify instances, in the form of KServe's protocol V1."""
    model = record.params["model"]
    check_labels_texts(model_for(context.catalog, record.client, model))
    asked = body.parameters or KServeParameters()
    fields = {"model": model, "inputs": body.instances, **dict(asked)}
    return Asked(read_fields(fields, record.headers, _NAMES), _write)


def _write(answered: Classification) -> Reply:
    traits = answered.classifier.traits
    predictions = [{each.label: each.score for each in row} for row in label_scores(answered)]
    exits = [exit_report(traits, answer) for answer in answered.classified.answers]
    return Reply(to_json({"predictions": predictions, "exits": exits}), exit_headers(answered))


KSERVE = Dialect(
    "kserve",
    re.compile(r"/v1/models/[^/]*:predict"),
    error_text,
    (
        Endpoint(
            "/v1/models/{model}:predict",
            KServeRequest,
            classifying(predict),
            {
                "tags": ["KServe"],
                "response_model": KServeResponse,
                "responses": classify_errors(ErrorText),
            },
        ),
    ),
    words={INPUT: r"instances\1", TRUNCATE: '"parameters": {"truncate": true}'},
)
