"""vLLM's /classify, which OpenAI's clients reach by their low-level `post`."""

import time
from functools import partial
from typing import Any, Literal

from pydantic import Field
from pydantic.config import JsonDict

from serve.api.choices import model_for
from serve.api.classify import check_inputs, read_fields, respond
from serve.api.context import AppContext
from serve.api.dial import Dial
from serve.api.openai_errors import OPENAI_STATUSES, OpenAIError, openai_error
from serve.api.request import Request
from serve.api.response import Response
from serve.api.route import INPUT, TRUNCATE, Dialect, Route
from serve.api.schemas import ResponseModel, examples
from serve.api.shown import (
    ExitReport,
    check_labels_texts,
    exit_headers,
    exit_report,
    function_of_transformers,
    label_scores,
    to_json,
)
from serve.classifier.classification import Classification
from serve.classifier.classify_request import MAX_LIST, TOO_MANY
from serve.errors import InvalidRequest

_TEXT: JsonDict = {"type": "string"}
_IDS: JsonDict = {"type": "array", "items": {"type": "integer"}}
_PAIR: JsonDict = {
    "type": "object",
    "properties": {"text": _TEXT, "text_pair": _TEXT},
    "required": ["text"],
}


class VllmRequest(Dial):
    """Texts or token ids, and how to answer; `exit` and `timeout_ms` are Offramp's own."""

    model_config = examples(
        {"input": "The movie was awesome."},
        {"input": ["The movie was awesome.", "You are good at messing up."]},
    )

    model: str | None = Field(
        default=None, description="May be left out when only one model is served."
    )
    input: Any = Field(
        description="A text, a list of texts, token ids with special tokens, or a list of those. "
        "Offramp also takes an object with text and text_pair in the place of a text.",
        json_schema_extra={
            "anyOf": [
                _TEXT,
                _PAIR,
                _IDS,
                {
                    "type": "array",
                    "items": {"anyOf": [_TEXT, _PAIR, _IDS]},
                    "maxItems": MAX_LIST,
                },
            ]
        },
    )
    user: str | None = Field(default=None, description="Has no effect, as in vLLM.")
    truncate_prompt_tokens: int | None = Field(
        default=None,
        ge=-1,
        description="-1 cuts texts to the model's length, and so does any number from there on. "
        "Smaller numbers are refused. Token ids are never cut.",
    )
    truncation_side: Literal["left", "right"] | None = Field(
        default=None, description="Texts are cut at the end only: left is refused where they are."
    )
    padding: Literal["do_not_pad"] | None = Field(
        default=None, description="Texts are not padded to the model's length."
    )
    add_special_tokens: bool | None = Field(
        default=None, description="False is refused: the models need them."
    )
    use_activation: bool | None = Field(
        default=None, description="False: `probs` are logits. Default: true."
    )
    activation: bool | None = Field(default=None, description="Older name of use_activation.")
    request_id: str | None = Field(
        default=None, max_length=128, description="Comes back in `id`, after classify-."
    )
    priority: int | None = Field(  # type: ignore[assignment]
        default=None, description="Below 0: before others; above 0: after them."
    )
    cache_salt: str | None = Field(
        default=None, max_length=1024, description="Has no effect: no answer is cached."
    )


class VllmClassification(ResponseModel):
    """The answer for one input."""

    index: int
    label: str
    probs: list[float | None] = Field(
        description="Probabilities by label id, of several labels each for itself; for a "
        "regression its value, or the sigmoid of it if the model's config states no problem_type "
        "regression."
    )
    num_classes: int
    exit: ExitReport


class VllmUsage(ResponseModel):
    """Tokens of all inputs, special tokens included."""

    prompt_tokens: int
    total_tokens: int
    completion_tokens: Literal[0]


class VllmResponse(ResponseModel):
    """The answers, in the order of the inputs."""

    id: str
    object: Literal["list"]
    created: int = Field(description="In seconds since 1970.")
    model: str
    data: list[VllmClassification]
    usage: VllmUsage


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


VLLM = Dialect(
    "vllm",
    openai_error,
    OpenAIError,
    [
        Route(
            "POST",
            "/classify",
            classify_as_vllm,
            "classify",
            VllmRequest,
            tag="vLLM",
            shown=VllmResponse,
        )
    ],
    statuses=OPENAI_STATUSES,
    words={INPUT: r"input\1", TRUNCATE: '"truncate_prompt_tokens": -1'},
)
