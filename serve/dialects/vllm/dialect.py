"""vLLM's /classify, which OpenAI's clients reach by their low-level `post`."""

import time
from functools import partial
from http import HTTPStatus
from typing import Any

from serve.api.classify import check_inputs, read_fields, respond
from serve.api.context import AppContext
from serve.api.dialect import INPUT, TRUNCATE, Dialect
from serve.api.documented import classify_errors
from serve.api.exit_report import exit_headers, exit_report
from serve.api.json_encoding import to_json
from serve.api.model_choice import model_for
from serve.api.request import Request
from serve.api.response import Response
from serve.api.route import Route
from serve.api.scores import check_labels_texts, function_of_transformers, label_scores
from serve.classifier.classification import Classification
from serve.classifier.classify_request import MAX_LIST, TOO_MANY
from serve.dialects.vllm.schemas import OpenAIError, VllmRequest, VllmResponse
from serve.errors import InvalidRequest, OfframpError

# The names of our fields in the request.
_NAMES = {"inputs": "input"}


async def classify_as_vllm(context: AppContext, request: Request, body: VllmRequest) -> Response:
    """Classify texts or token ids, in the form of vLLM's /classify."""
    classifier = model_for(context.catalog, request.client, body.model)
    check_labels_texts(classifier)
    fields = {
        "model": body.model,
        "inputs": _inputs(body.input, context.limits.max_inputs),
        "truncate": _truncates(body, classifier.bundle.manifest.max_tokens),
        "priority": _priority(body.priority),
        "exit": body.exit,
        "timeout_ms": body.timeout_ms,
    }
    write = partial(_write, body.request_id or request.request_id, _wants_logits(body))
    return await respond(context, request, read_fields(fields, request.headers, _NAMES), write)


def _inputs(given: Any, max_inputs: int) -> Any:
    """Return the inputs in our own form; what is neither is refused later.

    Raises:
        TooManyInputs: there are more.
    """
    if not isinstance(given, list):
        return given
    if given and type(given[0]) is int:
        return {"input_ids": given}
    if len(given) > MAX_LIST:
        return TOO_MANY
    check_inputs(len(given), max_inputs)
    return [{"input_ids": x} if isinstance(x, list) else x for x in given]


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


def _write(request_id: str, logits: bool, answered: Classification) -> Response:
    classifier = answered.classifier
    rows = label_scores(answered, "none" if logits else function_of_transformers(classifier))
    num_tokens = sum(answered.lengths)
    fields = {
        "id": f"classify-{request_id}",
        "object": "list",
        "created": int(time.time()),
        "model": classifier.name,
        "data": [
            {
                "index": index,
                "label": row[0].label,
                "probs": [each.score for each in sorted(row)],  # by label id
                "num_classes": len(row),
                "exit": exit_report(classifier.traits, answer),
            }
            for index, (row, answer) in enumerate(zip(rows, answered.answers, strict=True))
        ],
        "usage": {"prompt_tokens": num_tokens, "total_tokens": num_tokens, "completion_tokens": 0},
    }
    return Response(to_json(fields), exit_headers(answered))


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


def _responses() -> dict[int | str, dict[str, Any]]:
    """Return what OpenAPI says of the errors, of which 422 comes as 400."""
    responses = classify_errors(OpenAIError)
    wrong = f"{responses[400]['description']} {responses.pop(422)['description']}"
    responses[400] = {**responses[400], "description": wrong}
    return responses


_OPTIONS: dict[str, Any] = {
    "tags": ["vLLM"],
    "response_model": VllmResponse,
    "responses": _responses(),
}

VLLM = Dialect(
    "vllm",
    _error,
    [Route("POST", "/classify", classify_as_vllm, "classify", VllmRequest, documented=_OPTIONS)],
    statuses=_STATUSES,
    words={INPUT: r"input\1", TRUNCATE: '"truncate_prompt_tokens": -1'},
)
