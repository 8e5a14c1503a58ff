"""KServe's protocol V1, as `kserve.InferenceRESTClient` and gateways in front of it speak it.

`GET /v1/models/{model}`, by which its clients see whether a model is ready, is our own route.
"""

from typing import Any

from serve.api.classify import read_fields, respond
from serve.api.context import AppContext
from serve.api.dialect import INPUT, TRUNCATE, Dialect, error_text
from serve.api.documented import classify_errors
from serve.api.exit_report import exit_headers, exit_report
from serve.api.json_encoding import to_json
from serve.api.model_choice import model_for
from serve.api.request import Request
from serve.api.response import Response
from serve.api.route import Route
from serve.api.schemas.error import ErrorText
from serve.api.scores import check_labels_texts, label_scores
from serve.classifier.classification import Classification
from serve.dialects.kserve.schemas import KServeParameters, KServeRequest, KServeResponse

# The names of our fields in the request.
_NAMES = {
    "inputs": "instances",
    "truncate": "parameters.truncate",
    "exit": "parameters.exit",
    "timeout_ms": "parameters.timeout_ms",
    "priority": "parameters.priority",
}


async def predict(context: AppContext, request: Request, body: KServeRequest) -> Response:
    """Classify instances, in the form of KServe's protocol V1."""
    model = request.params["model"]
    check_labels_texts(model_for(context.catalog, request.client, model))
    asked = body.parameters or KServeParameters()
    fields = {"model": model, "inputs": body.instances, **dict(asked)}
    return await respond(context, request, read_fields(fields, request.headers, _NAMES), _write)


def _write(answered: Classification) -> Response:
    traits = answered.classifier.traits
    predictions = [{each.label: each.score for each in row} for row in label_scores(answered)]
    exits = [exit_report(traits, answer) for answer in answered.answers]
    return Response(to_json({"predictions": predictions, "exits": exits}), exit_headers(answered))


_OPTIONS: dict[str, Any] = {
    "tags": ["KServe"],
    "response_model": KServeResponse,
    "responses": classify_errors(ErrorText),
}
_PATH = "/v1/models/{model}:predict"

KSERVE = Dialect(
    "kserve",
    error_text,
    [Route("POST", _PATH, predict, "classify", KServeRequest, documented=_OPTIONS)],
    words={INPUT: r"instances\1", TRUNCATE: '"parameters": {"truncate": true}'},
)
