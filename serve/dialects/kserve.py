"""KServe's protocol V1, as its clients and gateways in front of it speak it.

`GET /v1/models/{model}`, by which its clients see whether a model is ready, is our own route.
"""

from typing import Any

from pydantic import Field

from serve.api.choices import model_for
from serve.api.classify import read_fields, respond
from serve.api.context import AppContext
from serve.api.dial import Dial
from serve.api.request import Request
from serve.api.response import Response
from serve.api.route import INPUT, TRUNCATE, Dialect, Route, error_text
from serve.api.schemas import ErrorText, ResponseModel, examples
from serve.api.shown import (
    ExitReport,
    check_labels_texts,
    exit_headers,
    exit_report,
    label_scores,
    to_json,
)
from serve.classifier.classification import Classification
from serve.classifier.classify_request import MAX_LIST
from serve.validation import RequestModel


class KServeParameters(Dial):
    """Parameters of the answer; all are Offramp's own."""

    truncate: bool | None = Field(default=None, description="Cut texts that are too long.")


class KServeRequest(RequestModel):
    """The inputs, and how to answer."""

    model_config = examples(
        {"instances": ["The movie was awesome."]},
        {
            "instances": [{"text": "A dog runs.", "text_pair": "An animal moves."}],
            "parameters": {"exit": {"target": {"max_disagreement": 0.01}}},
        },
    )

    instances: list[Any] = Field(
        max_length=MAX_LIST,
        description="Texts, objects with text and text_pair, or objects with input_ids.",
    )
    parameters: KServeParameters | None = None


class KServeResponse(ResponseModel):
    """The answers, one for each instance."""

    predictions: list[dict[str, float | None]] = Field(
        description="The probability of each label, the answer first; for a regression its value."
    )
    exits: list[ExitReport] = Field(description="Where and why each instance left.")


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


_PATH = "/v1/models/{model}:predict"
KSERVE = Dialect(
    "kserve",
    error_text,
    ErrorText,
    [Route("POST", _PATH, predict, "classify", KServeRequest, tag="KServe", shown=KServeResponse)],
    words={INPUT: r"instances\1", TRUNCATE: '"parameters": {"truncate": true}'},
)
