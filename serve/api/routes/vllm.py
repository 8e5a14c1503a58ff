"""vLLM's /classify, which OpenAI's clients reach by their low-level `post`."""

import re
import time
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from serve.api.classification import Classification, classify, read_fields, respond
from serve.api.context import AppContext
from serve.api.dial import exit_headers
from serve.api.dialect import INPUT, TRUNCATE, Dialect
from serve.api.label_scores import check_labels_texts, label_scores
from serve.api.response_builder import exit_report
from serve.api.routes.classify import classify_errors
from serve.api.schemas.inputs import MAX_LIST
from serve.api.schemas.vllm import OpenAIError, VllmRequest, VllmResponse
from serve.errors import InvalidRequest, OfframpError

_TYPES = {
    401: "AuthenticationError",
    403: "PermissionDeniedError",
    404: "NotFoundError",
    429: "RateLimitError",
}
_STATUSES = {InvalidRequest.status: HTTPStatus.BAD_REQUEST.value}


def _error(error: OfframpError, message: str) -> Any:
    status = _STATUSES.get(error.status, error.status)
    kind = "InternalServerError" if status >= 500 else "BadRequestError"
    return {
        "error": {
            "message": message,
            "type": _TYPES.get(status, kind),
            "param": None,
            "code": status,
        }
    }


_PATHS = re.compile(r"/classify")
_WORDS = {INPUT: r"input\1", TRUNCATE: '"truncate_prompt_tokens": -1'}
VLLM = Dialect("vllm", _PATHS, _error, classifies=_PATHS, statuses=_STATUSES, words=_WORDS)

# What the request calls fields of ours.
_NAMES = {"inputs": "input"}


def add_vllm_route(app: FastAPI, context: AppContext) -> None:
    """Add the route that classifies."""
    responses = classify_errors(OpenAIError)
    wrong = f"{responses[400]['description']} {responses.pop(422)['description']}"
    responses[400] = {**responses[400], "description": wrong}

    @app.post("/classify", tags=["vLLM"], response_model=VllmResponse, responses=responses)
    async def classify_as_vllm(request: Request, body: VllmRequest) -> Response:
        """Classify texts or token ids, in the form of vLLM's /classify."""
        classifier = context.catalog.pick(body.model)
        check_labels_texts(classifier)
        fields = {
            "model": body.model,
            "inputs": _inputs(body.input),
            "truncate": _truncates(body, classifier.bundle.manifest.max_tokens),
            "priority": _priority(body.priority),
            "exit": body.exit,
            "timeout_ms": body.timeout_ms,
        }
        logits = _wants_logits(body)
        answered = await classify(context, request, read_fields(fields, request.headers, _NAMES))
        given_id = body.request_id or request.state.request_id
        return await respond(
            answered,
            lambda: _response(answered, given_id, logits),
            exit_headers(answered.classifier, answered.classified),
        )


def _inputs(given: Any) -> Any:
    """Return the inputs in our own form; what is neither is refused later."""
    if not isinstance(given, list):
        return given
    if given and type(given[0]) is int:
        return {"input_ids": given}
    # One more than may be, so that more are refused.
    return [{"input_ids": x} if isinstance(x, list) else x for x in given[: MAX_LIST + 1]]


def _truncates(body: VllmRequest, max_tokens: int) -> bool | None:
    if body.add_special_tokens is False:
        raise InvalidRequest(
            "add_special_tokens: the model needs them; leave it out, or send token ids"
        )
    length = body.truncate_prompt_tokens
    if length is None:
        return None
    if 0 <= length < max_tokens:
        raise InvalidRequest(
            f"truncate_prompt_tokens: texts are cut to the model's {max_tokens} tokens, not to "
            f"{length}; send -1"
        )
    if body.truncation_side == "left":
        raise InvalidRequest("truncation_side: texts are cut at the end only; send right")
    return True


def _priority(given: int | None) -> str | None:
    if not given:  # 0 is vLLM's default
        return None
    return "high" if given < 0 else "low"


def _wants_logits(body: VllmRequest) -> bool:
    if body.activation is not None and body.use_activation is not None:
        raise InvalidRequest("activation: is the older name of use_activation; send one")
    return body.activation is False or body.use_activation is False


def _response(answered: Classification, given_id: str, logits: bool) -> Any:
    classifier, classified = answered.classifier, answered.classified
    rows = label_scores(answered, "none" if logits else None)
    num_tokens = sum(classified.lengths)
    return {
        "id": f"classify-{given_id}",
        "object": "list",
        "created": int(time.time()),
        "model": classifier.name,
        "data": [
            {
                "index": index,
                "label": row[0].label,
                "probs": [each.score for each in sorted(row)],  # by label id
                "num_classes": len(row),
                "exit": exit_report(classifier.bundle.manifest, answer),
            }
            for index, (row, answer) in enumerate(zip(rows, classified.answers, strict=True))
        ],
        "usage": {"prompt_tokens": num_tokens, "total_tokens": num_tokens, "completion_tokens": 0},
    }
