"""The Open Inference Protocol, version 2, over HTTP: as Triton's and KServe's clients speak it."""

from functools import partial
from typing import Any

from serve.access.keys import Scope
from serve.api.classification import read_fields, respond
from serve.api.context import AppContext
from serve.api.dialect import TRUNCATE, Dialect, error_text
from serve.api.documented import classify_errors
from serve.api.json_encoding import to_json
from serve.api.model_choice import model_for
from serve.api.request import Request
from serve.api.response import Response
from serve.api.route import Handler, Route
from serve.api.schemas.error import ErrorText
from serve.dialects.oip.answer import write
from serve.dialects.oip.body import read_infer
from serve.dialects.oip.inputs import inputs_of
from serve.dialects.oip.models import MODEL_ROUTES, check_version, model_index
from serve.dialects.oip.parameters import NAMES, dial_of
from serve.dialects.oip.repository import load_model, unload_model
from serve.dialects.oip.request import tensors_in, wanted_outputs
from serve.dialects.oip.schemas import (
    IndexEntry,
    IndexRequest,
    InferRequest,
    InferResponse,
    LoadRequest,
    UnloadRequest,
)
from serve.dialects.oip.signature import VERSION
from serve.errors import InvalidRequest, NotSupported


async def infer(context: AppContext, request: Request, body: InferRequest) -> Response:
    """Classify the rows of tensors; the only version of a model is 1."""
    model, version = request.params["model"], request.params.get("version", VERSION)
    classifier = model_for(context.catalog, request.client, model)
    check_version(classifier, version)
    if body.model_name not in (None, model, classifier.name):
        raise InvalidRequest(f"model_name: differs from {model!r}, the model of the path")
    wanted = wanted_outputs(body, classifier)
    parameters = dict(body.parameters or {})
    parameters.pop("binary_data_output", None)
    tensors = tensors_in(body, context.limits.max_inputs)
    fields = {"model": model, "inputs": inputs_of(tensors), **dial_of(parameters)}
    accepted = request.headers.get("accept-encoding", "")
    asked = read_fields(fields, request.headers, NAMES)
    return await respond(context, request, asked, partial(write, wanted, body.id, accepted))


async def index(context: AppContext, request: Request, body: IndexRequest) -> Response:
    """List the models, and the bundles that could be loaded."""
    return Response(to_json(await model_index(context, body.ready)))


async def load(context: AppContext, request: Request, body: LoadRequest) -> Response:
    """Load the bundle of the model's name, or read its bundle anew, in every replica."""
    await load_model(context, request, request.params["model"], (body.parameters or {}).keys())
    return Response(b"", media_type="")


async def unload(context: AppContext, request: Request, body: UnloadRequest) -> Response:
    """Serve a model no more; requests that it has taken are answered."""
    await unload_model(context, request, request.params["model"], (body.parameters or {}).keys())
    return Response(b"", media_type="")


# Triton's, which this server does not have.
_LACKING = {
    "/v2/logging": "logging is set up when the server starts",
    "/v2/trace/setting": "tracing is set up when the server starts",
    "/v2/models/{model}/trace/setting": "tracing is set up when the server starts",
    "/v2/systemsharedmemory/{rest:path}": "there is no shared memory; send tensors in the body",
    "/v2/cudasharedmemory/{rest:path}": "there is no shared memory; send tensors in the body",
}


def _refuse(why: str) -> Handler:
    async def refuse(context: AppContext, request: Request) -> Response:
        raise NotSupported(why)

    return refuse


_LOOK_OR_CHANGE: tuple[tuple[str, Scope], ...] = (("GET", "read"), ("POST", "admin"))
_BINARY: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}
_OR_BINARY = {"requestBody": {"content": {"application/octet-stream": _BINARY}}}


def _answers() -> dict[int | str, dict[str, Any]]:
    """Return what OpenAPI says of the answers to an inference."""
    answers = classify_errors(ErrorText)
    answers[200] = {"description": "The outputs.", "content": {"application/octet-stream": _BINARY}}
    answers[400]["description"] = "The body is not JSON and tensors behind it, as both must be."
    answers[415]["description"] = "The body is of a form, or is compressed in an unknown way."
    return answers


def _errors_of_bodies() -> dict[int | str, dict[str, Any]]:
    answers = _answers()
    default = {"model": ErrorText, "description": "Any other error."}
    return {"default": default, **{status: answers[status] for status in (400, 413, 415, 422, 429)}}


_TAGS: dict[str, Any] = {"tags": ["Open Inference Protocol"]}
_INFER: dict[str, Any] = {
    **_TAGS,
    "response_model": InferResponse,
    "responses": _answers(),
    "openapi_extra": _OR_BINARY,
}
_INDEX: dict[str, Any] = {
    **_TAGS,
    "response_model": list[IndexEntry],
    "responses": _errors_of_bodies(),
    "openapi_extra": {"requestBody": {"required": False}},
}
_CHANGE: dict[str, Any] = {
    **_TAGS,
    "responses": {
        200: {"description": "Done, in all replicas."},
        404: {"model": ErrorText, "description": "No such model or bundle."},
        **_errors_of_bodies(),
    },
    "openapi_extra": {"requestBody": {"required": False}},
}
_OF_REPOSITORY = "/v2/repository/models/{model}"

_INDEX_PATH = "/v2/repository/index"
OIP = Dialect(
    "oip",
    error_text,
    (
        *(
            Route("POST", path, infer, "classify", InferRequest, read_infer, documented=_INFER)
            for path in (
                "/v2/models/{model}/infer",
                "/v2/models/{model}/versions/{version}/infer",
            )
        ),
        Route("POST", _INDEX_PATH, index, "read", IndexRequest, read_infer, documented=_INDEX),
        *(
            Route("POST", path, handle, "admin", schema, read_infer, documented=_CHANGE)
            for path, handle, schema in (
                (f"{_OF_REPOSITORY}/load", load, LoadRequest),
                (f"{_OF_REPOSITORY}/unload", unload, UnloadRequest),
            )
        ),
        *MODEL_ROUTES,
        *(
            Route(method, path, _refuse(why), scope)
            for path, why in _LACKING.items()
            for method, scope in _LOOK_OR_CHANGE
        ),
    ),
    below="/v2",
    words={TRUNCATE: '"parameters": {"truncate": true}'},
)
