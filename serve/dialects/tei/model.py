"""The routes of TEI that describe the model and tokenize texts."""

from functools import partial
from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag
from tokenizers import Encoding

from serve.api.choices import model_for
from serve.api.context import AppContext
from serve.api.request import Request
from serve.api.response import Response
from serve.api.route import Route
from serve.api.schemas import ResponseModel
from serve.api.shown import to_json
from serve.classifier.classify_request import MAX_LIST
from serve.errors import InvalidRequest, TooManyInputs
from serve.tokenization.inputs import PIECE_CHARS
from serve.validation import RequestModel
from serve.version import __version__

_Texts = Annotated[
    Annotated[str, Tag("<text>")]
    | Annotated[list[str], Field(min_length=1, max_length=MAX_LIST, fail_fast=True), Tag("<list>")],
    Discriminator(
        lambda value: "<list>" if isinstance(value, list) else "<text>",
    ),
]


class TeiTokenizeRequest(RequestModel):
    """Texts to tokenize."""

    inputs: _Texts = Field(description="A text or a list of texts.")
    add_special_tokens: bool | None = Field(default=None, description="Default: true.")
    prompt_name: str | None = Field(default=None, description="Refused: there are no prompts.")


class TeiToken(ResponseModel):
    """A token; `start` and `stop` are characters of the text, null for special tokens."""

    id: int
    text: str
    special: bool
    start: int | None
    stop: int | None


TAG = "Text Embeddings Inference"


async def info(context: AppContext, request: Request) -> Response:
    """Describe the model of the path or the only one, in the form of TEI."""
    classifier = context.catalog.pick(request.params.get("model"))
    manifest, options = classifier.bundle.manifest, classifier.options
    labels = {
        "id2label": {str(i): label for i, label in enumerate(manifest.labels)},
        "label2id": {label: i for i, label in enumerate(manifest.labels)},
    }
    about = {
        "model_id": classifier.name,
        "model_sha": manifest.files[manifest.variants[classifier.precision].weights],
        "model_dtype": _DTYPES[classifier.precision],
        "served_model_name": classifier.name,
        "model_type": {"classifier": labels},
        "max_concurrent_requests": options.queue_limits.max_rows,
        "max_input_length": manifest.max_tokens,
        "max_batch_tokens": classifier.batch_limits.max_tokens,
        "max_batch_requests": classifier.batch_limits.max_rows,
        "max_client_batch_size": context.limits.max_inputs,
        "auto_truncate": False,
        "tokenization_workers": options.tokenizer_threads,
        "version": __version__,
        "sha": None,
        "docker_label": None,
    }
    return Response(to_json(about))


_DTYPES = {"fp32": "float32", "fp16": "float16", "int8": "int8"}


async def tokenize(context: AppContext, request: Request, body: TeiTokenizeRequest) -> Response:
    """Tokenize texts as the model of the path or the only one, in the form of TEI."""
    client = request.client
    classifier = model_for(context.catalog, client, request.params.get("model"))
    request.model = classifier.name
    if body.prompt_name is not None:
        raise InvalidRequest("prompt_name: the model has no prompts; leave it out")
    texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
    _check_size(texts, context.limits.max_inputs)
    client.take_texts(len(texts), max(map(len, texts)))
    special_tokens = body.add_special_tokens is not False
    listed, num_tokens = await classifier.tokenizer.encode(
        texts, special_tokens, partial(_listed, texts)
    )
    client.take("tokens", num_tokens)
    return Response(listed)


def _check_size(texts: list[str], max_inputs: int) -> None:
    """Refuse more than is tokenized at once."""
    if len(texts) > max_inputs:
        raise TooManyInputs(f"inputs: {len(texts)} texts, at most {max_inputs} per request")
    if (num_chars := sum(map(len, texts))) > PIECE_CHARS:
        raise InvalidRequest(
            f"inputs: {num_chars} characters, at most {PIECE_CHARS} per request; send more requests"
        )


def _listed(texts: list[str], encodings: list[Encoding]) -> tuple[bytes, int]:
    """Return the tokens of texts as JSON, and their number."""
    lists = [to_json(_tokens(text, each)) for text, each in zip(texts, encodings, strict=True)]
    return b"[" + b",".join(lists) + b"]", sum(map(len, encodings))


def _tokens(text: str, encoding: Encoding) -> list[dict[str, Any]]:
    tokens = []
    ids, names, special = encoding.ids, encoding.tokens, encoding.special_tokens_mask
    for i, (start, stop) in enumerate(encoding.offsets):
        if special[i]:
            place = {"text": names[i], "special": True, "start": None, "stop": None}
        else:
            place = {"text": text[start:stop], "special": False, "start": start, "stop": stop}
        tokens.append({"id": ids[i], **place})
    return tokens


_ERRORS = {404: "No such model.", 422: "The request asks for something that cannot be."}
_SHOWN = list[list[TeiToken]]
MODEL_ROUTES = [
    *(
        Route("POST", path, tokenize, "classify", TeiTokenizeRequest, tag=TAG, shown=_SHOWN)
        for path in ("/tokenize", "/models/{model}/tokenize")
    ),
    *(
        Route("GET", path, info, "read", tag=TAG, shown=dict[str, Any], errors=_ERRORS)
        for path in ("/info", "/models/{model}/info")
    ),
]
