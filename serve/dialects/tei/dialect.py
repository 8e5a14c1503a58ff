"""Text Embeddings Inference (TEI): the routes for classifiers.

TEI serves one model, so its clients name none. Where Offramp serves several, their base address
is that of a model: `http://host/models/NAME`.
"""

from functools import partial
from typing import Any, Literal

from pydantic import Field
from pydantic.config import JsonDict

from serve.api.choices import model_for
from serve.api.classify import read_fields, respond
from serve.api.context import AppContext
from serve.api.request import Request
from serve.api.response import Response
from serve.api.route import Dialect, Route
from serve.api.routes.operations import NOT_READY, check_ready
from serve.api.schemas import ResponseModel, examples
from serve.api.shown import Function, check_labels_texts, exit_headers, label_scores, to_json
from serve.classifier.classification import Classification
from serve.classifier.classify_request import MAX_LIST, TOO_MANY
from serve.dialects.tei.model import MODEL_ROUTES, TAG
from serve.errors import InvalidRequest, OfframpError, Overloaded, Unavailable
from serve.tokenization.inputs import size_of
from serve.validation import RequestModel

_TEXT: JsonDict = {"type": "string"}
_TEXT_OR_PAIR: JsonDict = {"type": "array", "items": _TEXT, "minItems": 1, "maxItems": 2}


class TeiRequest(RequestModel):
    """One text or pair, or a batch of them, and how to answer."""

    model_config = examples(
        {"inputs": "The movie was awesome."},
        {"inputs": ["A dog runs.", "An animal moves."]},
        {"inputs": [["A dog runs.", "An animal moves."], ["The movie was awesome."]]},
    )

    inputs: Any = Field(
        description="A text; or a list of one text; or a list of two, which are ONE pair; or a "
        "batch: a list of such lists.",
        json_schema_extra={
            "anyOf": [
                _TEXT,
                _TEXT_OR_PAIR,
                {"type": "array", "items": _TEXT_OR_PAIR, "minItems": 1, "maxItems": MAX_LIST},
            ]
        },
    )
    truncate: bool | None = Field(
        default=None, description="Cut texts that are too long. Default: false."
    )
    truncation_direction: Literal["Left", "Right", "left", "right"] | None = Field(
        default=None, description="Texts are cut at the end only: Left is refused with truncate."
    )
    raw_scores: bool | None = Field(default=None, description="Scores are logits.")


class TeiPrediction(ResponseModel):
    """A label and its score."""

    score: float | None
    label: str


class TeiError(ResponseModel):
    """An error as TEI's clients read it."""

    error: str
    error_type: Literal["Unhealthy", "Backend", "Overloaded", "Validation"]


async def predict(context: AppContext, request: Request, body: TeiRequest) -> Response:
    """Classify with the model of the path or the only one, in the form of TEI.

    Scores of a model of several labels are sigmoids, each label for itself. TEI gives a softmax
    there, which is none of the model's probabilities. One logit is given as its sigmoid, as by TEI.
    """
    model = request.params.get("model")
    check_labels_texts(model_for(context.catalog, request.client, model))
    if body.truncate and body.truncation_direction in ("Left", "left"):
        raise InvalidRequest("truncation_direction: texts are cut at the end only; send Right")
    several, inputs = _inputs(body.inputs)
    fields = {"model": model, "inputs": inputs, "truncate": body.truncate}
    write = partial(_write, several, body.raw_scores)
    return await respond(context, request, read_fields(fields, request.headers), write)


def _inputs(given: Any) -> tuple[bool, Any]:
    """Return whether the inputs are a batch, and the inputs in our own form."""
    if isinstance(given, str):
        return False, given
    if isinstance(given, list) and given:
        if isinstance(given[0], list):
            if len(given) > MAX_LIST:
                return True, TOO_MANY
            return True, [_text_or_pair(each) for each in given]
        return False, [_text_or_pair(given)]
    raise InvalidRequest("inputs: must be a text, [text], [text, text], or a list of such lists")


def _text_or_pair(given: Any) -> dict[str, Any]:
    if not isinstance(given, list) or not 1 <= len(given) <= 2:
        raise InvalidRequest(
            "inputs: a list of one or two texts is one input; send a batch as [[text], "
            "[text, text], ...]"
        )
    return dict(zip(("text", "text_pair"), given, strict=False))


def _write(several: bool, raw_scores: bool | None, answered: Classification) -> Response:
    one = answered.classifier.traits.task == "regression"
    function: Function | None = "none" if raw_scores else "sigmoid" if one else None
    found = [
        [{"score": each.score, "label": each.label} for each in row]
        for row in label_scores(answered, function)
    ]
    headers = exit_headers(answered) | _timing(answered)
    return Response(to_json(found if several else found[0]), headers)


def _timing(answered: Classification) -> dict[str, str]:
    """Return TEI's headers, times in whole milliseconds as there; the slowest text counts."""
    began_s, ended_s = answered.tokenized or (0.0, 0.0)
    seconds = {
        "X-Compute-Time": answered.total_s,
        "X-Total-Time": answered.total_s,
        "X-Tokenization-Time": ended_s - began_s,
        "X-Queue-Time": max(each.queue_s for each in answered.answers),
        "X-Inference-Time": max(each.compute_s for each in answered.answers),
    }
    return {
        "X-Compute-Type": answered.classifier.device,
        "X-Compute-Characters": str(sum(map(size_of, answered.inputs))),
        "X-Compute-Tokens": str(sum(answered.lengths)),
        **{name: str(int(value * 1000)) for name, value in seconds.items()},
    }


def _error(error: OfframpError, message: str) -> Any:
    kind = "Backend" if error.status >= 500 else "Validation"
    if isinstance(error, Unavailable):
        kind = "Unhealthy"
    if isinstance(error, Overloaded):
        kind = "Overloaded"
    return {"error": message, "error_type": kind}


async def health(context: AppContext, request: Request) -> Response:
    """Tell whether the server is ready, as TEI does: without a body."""
    check_ready(context)
    return Response(b"", media_type="")


_SHOWN = list[TeiPrediction] | list[list[TeiPrediction]]
TEI = Dialect(
    "tei",
    _error,
    TeiError,
    (
        *(
            Route("POST", path, predict, "classify", TeiRequest, tag=TAG, shown=_SHOWN)
            for path in ("/predict", "/models/{model}/predict")
        ),
        *MODEL_ROUTES,
        Route("GET", "/health", health, None, probe=True, tag=TAG, errors=NOT_READY),
    ),
)
