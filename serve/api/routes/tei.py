"""Text Embeddings Inference (TEI): the routes for classifiers.

TEI serves one model, so its clients name none. Where Offramp serves several, their base address
is that of a model: `http://host/models/NAME`.
"""

import re
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from serve.api.classification import Classification, classify, read_fields, respond
from serve.api.context import AppContext
from serve.api.dial import exit_headers
from serve.api.dialect import Dialect
from serve.api.label_scores import check_labels_texts, label_scores
from serve.api.routes.classify import classify_errors
from serve.api.routes.operations import check_ready
from serve.api.routes.tei_model import add_tei_model_routes
from serve.api.schemas.inputs import MAX_LIST
from serve.api.schemas.tei import TeiError, TeiPrediction, TeiRequest
from serve.errors import InvalidRequest, OfframpError, Overloaded, Unavailable
from serve.tokenization.inputs import size_of

_TAG = "Text Embeddings Inference"


def _error(error: OfframpError, message: str) -> Any:
    kind = "Backend" if error.status >= 500 else "Validation"
    if isinstance(error, Unavailable):
        kind = "Unhealthy"
    if isinstance(error, Overloaded):
        kind = "Overloaded"
    return {"error": message, "error_type": kind}


_ROUTES = r"(/models/[^/]*)?/(predict|tokenize)|/invocations"
TEI = Dialect(
    "tei",
    re.compile(rf"{_ROUTES}|(/models/[^/]*)?/info|/health"),
    _error,
    classifies=re.compile(_ROUTES),
    probes=re.compile(r"/health"),
)


def add_tei_routes(app: FastAPI, context: AppContext) -> None:
    """Add the routes for one and for several models."""
    options: dict[str, Any] = {
        "tags": [_TAG],
        "response_model": list[TeiPrediction] | list[list[TeiPrediction]],
        "responses": classify_errors(TeiError),
    }

    @app.post("/predict", **options)
    @app.post("/invocations", **options)
    async def predict(request: Request, body: TeiRequest) -> Response:
        """Classify with the only model, in the form of TEI.

        Scores of a model of several labels are sigmoids, each label for itself. TEI gives a
        softmax there, which is none of the model's probabilities.
        """
        return await _predict(context, request, body, None)

    @app.post("/models/{model}/predict", **options)
    async def predict_with_model(request: Request, body: TeiRequest, model: str) -> Response:
        """Classify with a model, in the form of TEI."""
        return await _predict(context, request, body, model)

    @app.get(
        "/health",
        tags=[_TAG],
        response_class=Response,
        responses={503: {"model": TeiError, "description": "Not ready, or not any more."}},
    )
    async def health() -> Response:
        """Tell whether the server is ready, as TEI does: without a body."""
        check_ready(context)
        return Response()

    add_tei_model_routes(app, context, _TAG)


async def _predict(
    context: AppContext, request: Request, body: TeiRequest, model: str | None
) -> Response:
    check_labels_texts(context.catalog.pick(model))
    if body.truncate and body.truncation_direction in ("Left", "left"):
        raise InvalidRequest("truncation_direction: texts are cut at the end only; send Right")
    several, inputs = _inputs(body.inputs)
    fields = {"model": model, "inputs": inputs, "truncate": body.truncate}
    answered = await classify(context, request, read_fields(fields, request.headers))

    def make() -> Any:
        found = [
            [{"score": each.score, "label": each.label} for each in row]
            for row in label_scores(answered, "none" if body.raw_scores else None)
        ]
        return found if several else found[0]

    headers = exit_headers(answered.classifier, answered.classified)
    return await respond(answered, make, headers | _timing(answered))


def _inputs(given: Any) -> tuple[bool, Any]:
    """Return whether the inputs are a batch, and the inputs in our own form."""
    if isinstance(given, str):
        return False, given
    if isinstance(given, list) and given:
        if isinstance(given[0], list):
            # One more than may be, so that more are refused.
            return True, [_text_or_pair(each) for each in given[: MAX_LIST + 1]]
        return False, [_text_or_pair(given)]
    raise InvalidRequest("inputs: must be a text, [text], [text, text], or a list of such lists")


def _text_or_pair(given: Any) -> dict[str, Any]:
    if not isinstance(given, list) or not 1 <= len(given) <= 2:
        raise InvalidRequest(
            "inputs: a list of one or two texts is one input; send a batch as [[text], "
            "[text, text], ...]"
        )
    return dict(zip(("text", "text_pair"), given, strict=False))


def _timing(answered: Classification) -> dict[str, str]:
    """Return TEI's headers, times in whole milliseconds as there; the slowest text counts."""
    classified = answered.classified
    seconds = {
        "X-Compute-Time": answered.total_s,
        "X-Total-Time": answered.total_s,
        "X-Tokenization-Time": classified.tokenize_s,
        "X-Queue-Time": max(each.queue_s for each in classified.answers),
        "X-Inference-Time": max(each.compute_s for each in classified.answers),
    }
    return {
        "X-Compute-Type": answered.classifier.device,
        "X-Compute-Characters": str(sum(map(size_of, answered.body.read_inputs()))),
        "X-Compute-Tokens": str(sum(classified.lengths)),
        **{name: str(int(value * 1000)) for name, value in seconds.items()},
    }
