"""The Open Inference Protocol, version 2, over HTTP: as Triton's and KServe's clients speak it."""

from functools import partial
from typing import Any

from serve.access.keys import Scope
from serve.api.classify import read_fields, respond
from serve.api.context import AppContext
from serve.api.dialect import TRUNCATE, Dialect, error_text
from serve.api.documented import classify_errors
from serve.api.json_encoding import to_json
from serve.api.model_choice import model_for
from serve.api.request import Request
from serve.api.response import Response
from serve.api.route import Handler, Route
from serve.api.schemas.error import ErrorText
from serve.dialects.oip.infer_body import read_infer
from serve.dialects.oip.infer_request import NAMES, dial_of, inputs_of, tensors_in, wanted_outputs
from serve.dialects.oip.model_routes import MODEL_ROUTES, change_model, check_version, model_index
from serve.dialects.oip.output_tensors import write
from serve.dialects.oip.schemas import (
    IndexEntry,
    IndexRequest,
    InferRequest,
    InferResponse,
    LoadRequest,
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
    await change_model(context, request, request.params["model"], True, body.parameters or ())
    return Response(b"")


async def unload(context: AppContext, request: Request, body: LoadRequest) -> Response:
    """Stop serving a model; requests that it has accepted are answered."""
    await change_model(context, request, request.params["model"], False, body.parameters or ())
    return Response(b"")


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


_BINARY: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}
_ANSWERS = classify_errors(ErrorText)
_ANSWERS[400]["description"] = "The body is not JSON and tensors behind it, as both must be."
_ANSWERS[415]["description"] = "The body is of a form, or is compressed in an unknown way."
_OF_BODIES = {status: _ANSWERS[status] for status in ("default", 400, 413, 415, 422, 429)}
_TAGS: dict[str, Any] = {"tags": ["Open Inference Protocol"]}
_OPTIONAL: dict[str, Any] = {"openapi_extra": {"requestBody": {"required": False}}}
_INFER: dict[str, Any] = {
    **_TAGS,
    "response_model": InferResponse,
    "responses": {
        **_ANSWERS,
        200: {"description": "The outputs.", "content": {"application/octet-stream": _BINARY}},
    },
    "openapi_extra": {"requestBody": {"content": {"application/octet-stream": _BINARY}}},
}
_INDEX: dict[str, Any] = {
    **_TAGS,
    **_OPTIONAL,
    "response_model": list[IndexEntry],
    "responses": _OF_BODIES,
}
_CHANGE: dict[str, Any] = {
    **_TAGS,
    **_OPTIONAL,
    "responses": {
        200: {"description": "Done, in all replicas."},
        404: {"model": ErrorText, "description": "No such model or bundle."},
        **_OF_BODIES,
    },
}


def _post(path: str, handle: Handler, scope: Scope, schema: Any, documented: Any) -> Route:
    return Route("POST", path, handle, scope, schema, read_infer, documented=documented)


_MODEL, _REPOSITORY = "/v2/models/{model}", "/v2/repository"
OIP = Dialect(
    "oip",
    error_text,
    (
        _post(f"{_MODEL}/infer", infer, "classify", InferRequest, _INFER),
        _post(f"{_MODEL}/versions/{{version}}/infer", infer, "classify", InferRequest, _INFER),
        _post(f"{_REPOSITORY}/index", index, "read", IndexRequest, _INDEX),
        _post(f"{_REPOSITORY}/models/{{model}}/load", load, "admin", LoadRequest, _CHANGE),
        _post(f"{_REPOSITORY}/models/{{model}}/unload", unload, "admin", LoadRequest, _CHANGE),
        *MODEL_ROUTES,
        *(Route("GET", path, _refuse(why), "read") for path, why in _LACKING.items()),
        *(Route("POST", path, _refuse(why), "admin") for path, why in _LACKING.items()),
    ),
    below="/v2",
    words={TRUNCATE: '"parameters": {"truncate": true}'},
)
