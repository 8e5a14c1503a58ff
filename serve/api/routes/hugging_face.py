"""Hugging Face's Inference API, as `huggingface_hub.InferenceClient` calls it.

The client takes the first element of an answer to text classification, so the labels of one text
are a list in a list. For token classification it takes the whole list.
"""

import re
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from serve.api.classification import Classification, classify, read_fields, respond
from serve.api.context import AppContext
from serve.api.dial import exit_headers
from serve.api.dialect import TRUNCATE, Dialect
from serve.api.label_scores import label_scores
from serve.api.response_builder import build_results
from serve.api.routes.classify import classify_errors
from serve.api.schemas.hugging_face import (
    ErrorText,
    HuggingFaceEntity,
    HuggingFaceLabel,
    HuggingFaceParameters,
    HuggingFaceRequest,
)
from serve.errors import InvalidRequest, OfframpError


def error_text(error: OfframpError, message: str) -> Any:
    """Return an error as these clients read it."""
    return {"error": message}


_PATHS = re.compile(r"/|/models/[^/]*")
_WORDS = {TRUNCATE: '"parameters": {"truncation": true}'}
HUGGING_FACE = Dialect("hf", _PATHS, error_text, classifies=_PATHS, words=_WORDS)

Answer = list[list[HuggingFaceLabel]] | list[HuggingFaceEntity] | list[list[HuggingFaceEntity]]


def add_hugging_face_routes(app: FastAPI, context: AppContext) -> None:
    """Add the routes for one and for several models."""
    options: dict[str, Any] = {
        "tags": ["Hugging Face"],
        "response_model": Answer,
        "responses": classify_errors(ErrorText),
    }

    @app.post("/", **options)
    async def classify_with_only_model(request: Request, body: HuggingFaceRequest) -> Response:
        """Classify with the only model, in the form of Hugging Face's Inference API."""
        return await _answer(context, request, body, None)

    @app.post("/models/{model}", **options)
    async def classify_with_model(
        request: Request, body: HuggingFaceRequest, model: str
    ) -> Response:
        """Classify with a model, in the form of Hugging Face's Inference API."""
        return await _answer(context, request, body, model)


async def _answer(
    context: AppContext, request: Request, body: HuggingFaceRequest, model: str | None
) -> Response:
    asked = body.parameters or HuggingFaceParameters()
    task = context.catalog.pick(model).bundle.manifest.task
    _check(asked, task == "token")
    fields = {
        "model": model,
        "inputs": body.inputs,
        "aggregation": asked.aggregation_strategy,
        "truncate": asked.truncation,
        "exit": asked.exit,
        "timeout_ms": asked.timeout_ms,
        "priority": asked.priority,
    }
    answered = await classify(context, request, read_fields(fields, request.headers, _NAMES))
    several = isinstance(body.inputs, list)

    def make() -> Any:
        return _entities(answered, asked, several) if task == "token" else _labels(answered, asked)

    return await respond(answered, make, exit_headers(answered.classifier, answered.classified))


# What the request calls fields of ours.
_NAMES = {
    "aggregation": "parameters.aggregation_strategy",
    "truncate": "parameters.truncation",
    "exit": "parameters.exit",
    "timeout_ms": "parameters.timeout_ms",
    "priority": "parameters.priority",
}


def _check(asked: HuggingFaceParameters, of_tokens: bool) -> None:
    """Refuse what the model's task has no use for."""
    for name in ("function_to_apply", "top_k") if of_tokens else ("ignore_labels",):
        if getattr(asked, name) is not None:
            kind = "label whole texts" if of_tokens else "label tokens"
            raise InvalidRequest(f"parameters.{name}: is for models that {kind}; leave it out")


def _labels(answered: Classification, asked: HuggingFaceParameters) -> list[Any]:
    found = label_scores(answered, asked.function_to_apply, asked.top_k)
    return [[{"label": each.label, "score": each.score} for each in row] for row in found]


def _entities(answered: Classification, asked: HuggingFaceParameters, several: bool) -> list[Any]:
    left_out = set(asked.ignore_labels or ())
    name = "entity" if asked.aggregation_strategy == "none" else "entity_group"
    shown = ("score", "word", "start", "end")
    found = [
        [
            {name: entity["entity"], **{key: entity[key] for key in shown}}
            for entity in result["entities"]
            if entity["entity"] not in left_out
        ]
        for result in build_results(answered.classifier, answered.body, answered.classified)
    ]
    return found if several else found[0]
