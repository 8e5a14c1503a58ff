"""Hugging Face's Inference API, as `huggingface_hub.InferenceClient` calls it.

The client takes the first element of an answer to text classification, so the labels of one text
are a list in a list. For token classification it takes the whole list.
"""

from functools import partial
from typing import Any, Literal

from pydantic import Field

from serve.api.choices import model_for
from serve.api.classify import read_fields, respond
from serve.api.context import AppContext
from serve.api.dial import Dial
from serve.api.request import Request
from serve.api.response import Response
from serve.api.route import TRUNCATE, Dialect, Route, error_text
from serve.api.schemas import ErrorText, ResponseModel, SparseModel, examples
from serve.api.shown import entities, exit_headers, function_of_transformers, label_scores, to_json
from serve.classifier.classification import Classification
from serve.errors import InvalidRequest
from serve.validation import RequestModel


class HuggingFaceParameters(Dial):
    """Parameters of both tasks; the last four are Offramp's own."""

    function_to_apply: Literal["softmax", "sigmoid", "none"] | None = Field(
        default=None, description="From logits to scores. Default: that of transformers' pipeline."
    )
    top_k: int | None = Field(default=None, ge=1, description="Return only the k best labels.")
    aggregation_strategy: Literal["none", "simple", "first", "average", "max"] | None = Field(
        default=None, description="For token classification: how tokens become entities."
    )
    ignore_labels: list[str] | None = Field(
        default=None,
        max_length=1000,
        fail_fast=True,
        description="Entities of these labels are left out.",
    )
    truncation: bool | None = Field(default=None, description="Cut texts that are too long.")


class HuggingFaceOptions(RequestModel):
    """Options of Hugging Face's own servers, which mean nothing here: no answer is kept."""

    use_cache: bool | None = None
    use_gpu: bool | None = None
    wait_for_model: bool | None = None


class HuggingFaceRequest(RequestModel):
    """One text or several, and how to answer."""

    model_config = examples({"inputs": "The movie was awesome.", "parameters": {"top_k": 1}})

    inputs: Any = Field(description="A text, an object with text and text_pair, or a list of them.")
    parameters: HuggingFaceParameters | None = None
    options: HuggingFaceOptions | None = Field(default=None, description="Without effect.")


class HuggingFaceLabel(ResponseModel):
    """A label and its score."""

    label: str
    score: float | None


class HuggingFaceEntity(SparseModel):
    """An entity; with the strategy `none`, its label is in `entity`, else in `entity_group`."""

    entity_group: str | None = None
    entity: str | None = None
    score: float
    word: str
    start: int | None
    end: int | None


Answer = list[list[HuggingFaceLabel]] | list[HuggingFaceEntity] | list[list[HuggingFaceEntity]]

# The names of our fields in the request.
_NAMES = {
    "aggregation": "parameters.aggregation_strategy",
    "truncate": "parameters.truncation",
    "exit": "parameters.exit",
    "timeout_ms": "parameters.timeout_ms",
    "priority": "parameters.priority",
}


async def classify(context: AppContext, request: Request, body: HuggingFaceRequest) -> Response:
    """Classify with the model of the path or the only one, as Hugging Face's Inference API does."""
    return await _classify(context, request, body, alone=False)


async def classify_as_pipeline(
    context: AppContext, request: Request, body: HuggingFaceRequest
) -> Response:
    """Do the same, but the labels of a single text are a list, as those of a pipeline."""
    return await _classify(context, request, body, alone=not isinstance(body.inputs, list))


async def _classify(
    context: AppContext, request: Request, body: HuggingFaceRequest, alone: bool
) -> Response:
    asked, model = body.parameters or HuggingFaceParameters(), request.params.get("model")
    of_tokens = model_for(context.catalog, request.client, model).traits.task == "token"
    _check(asked, of_tokens)
    fields = {
        "model": model,
        "inputs": body.inputs,
        "aggregation": asked.aggregation_strategy,
        "truncate": asked.truncation,
        "exit": asked.exit,
        "timeout_ms": asked.timeout_ms,
        "priority": asked.priority,
    }
    if of_tokens:
        write = partial(_write_entities, asked, isinstance(body.inputs, list))
    else:
        write = partial(_write_labels, asked, alone)
    return await respond(context, request, read_fields(fields, request.headers, _NAMES), write)


def _check(asked: HuggingFaceParameters, of_tokens: bool) -> None:
    """Refuse what the model's task has no use for."""
    for name in ("function_to_apply", "top_k") if of_tokens else ("ignore_labels",):
        if getattr(asked, name) is not None:
            kind = "label whole texts" if of_tokens else "label tokens"
            raise InvalidRequest(f"parameters.{name}: is for models that {kind}; leave it out")


def _write_labels(asked: HuggingFaceParameters, alone: bool, answered: Classification) -> Response:
    function = asked.function_to_apply or function_of_transformers(answered.classifier)
    found = label_scores(answered, function, asked.top_k)
    shown = [[{"label": each.label, "score": each.score} for each in row] for row in found]
    return Response(to_json(shown[0] if alone else shown), exit_headers(answered))


def _write_entities(
    asked: HuggingFaceParameters, several: bool, answered: Classification
) -> Response:
    left_out = set(asked.ignore_labels or ())
    name = "entity" if asked.aggregation_strategy == "none" else "entity_group"
    shown = ("score", "word", "start", "end")
    found: list[list[dict[str, Any]]] = [
        [
            {name: entity["entity"], **{key: entity[key] for key in shown}}
            for entity in of_text
            if entity["entity"] not in left_out
        ]
        for of_text in entities(answered)
    ]
    return Response(to_json(found if several else found[0]), exit_headers(answered))


HUGGING_FACE = Dialect(
    "hf",
    error_text,
    ErrorText,
    [
        Route(
            "POST", path, classify, "classify", HuggingFaceRequest, tag="Hugging Face", shown=Answer
        )
        for path in ("/", "/models/{model}")
    ],
    words={TRUNCATE: '"parameters": {"truncation": true}'},
)
