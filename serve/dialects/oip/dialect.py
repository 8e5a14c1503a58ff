"""The Open Inference Protocol, version 2, over HTTP: as Triton's and KServe's clients speak it."""

from functools import partial
from typing import Final

from serve.api.choices import model_for
from serve.api.classify import read_fields, respond
from serve.api.context import AppContext
from serve.api.request import Request
from serve.api.response import Response
from serve.api.route import TRUNCATE, Dialect, Handler, Route, error_text
from serve.api.schemas import ErrorText
from serve.api.shown import to_json
from serve.dialects.oip.infer_body import read_infer
from serve.dialects.oip.infer_request import NAMES, dial_of, inputs_of, tensors_in, wanted_outputs
from serve.dialects.oip.model_routes import (
    MODEL_ROUTES,
    TAG,
    change_model,
    check_version,
    model_index,
)
from serve.dialects.oip.output_tensors import write
from serve.dialects.oip.schemas import (
    VERSION,
    IndexEntry,
    IndexRequest,
    InferRequest,
    InferResponse,
    LoadRequest,
)
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


_MODEL, _REPOSITORY = "/v2/models/{model}", "/v2/repository"
_BINARY: Final = {"schema": {"type": "string", "format": "binary"}}
_OCTETS: Final = {"application/octet-stream": _BINARY}
_OPTIONAL: Final = {"openapi_extra": {"requestBody": {"required": False}}}
_OF_BODIES: Final = {
    400: "The body is not JSON and tensors behind it, as both must be.",
    415: "The body is of a form, or is compressed in an unknown way.",
    422: "The request asks for something that cannot be.",
    429: "The key has taken its share, or too many changes wait.",
}


def _infer(path: str) -> Route:
    return Route(
        "POST",
        path,
        infer,
        "classify",
        InferRequest,
        read_infer,
        tag=TAG,
        shown=InferResponse,
        errors={status: _OF_BODIES[status] for status in (400, 415)},
        more={
            "responses": {200: {"description": "The outputs.", "content": _OCTETS}},
            "openapi_extra": {"requestBody": {"content": _OCTETS}},
        },
    )


def _change(name: str, handle: Handler) -> Route:
    return Route(
        "POST",
        f"{_REPOSITORY}/models/{{model}}/{name}",
        handle,
        "admin",
        LoadRequest,
        read_infer,
        tag=TAG,
        errors={**_OF_BODIES, 404: "No such model or bundle."},
        more={**_OPTIONAL, "responses": {200: {"description": "Done, in all replicas."}}},
    )


OIP = Dialect(
    "oip",
    error_text,
    ErrorText,
    (
        _infer(f"{_MODEL}/infer"),
        _infer(f"{_MODEL}/versions/{{version}}/infer"),
        Route(
            "POST",
            f"{_REPOSITORY}/index",
            index,
            "read",
            IndexRequest,
            read_infer,
            tag=TAG,
            shown=list[IndexEntry],
            errors=_OF_BODIES,
            more=_OPTIONAL,
        ),
        _change("load", load),
        _change("unload", unload),
        *MODEL_ROUTES,
        *(Route("GET", path, _refuse(why), "read") for path, why in _LACKING.items()),
        *(Route("POST", path, _refuse(why), "admin") for path, why in _LACKING.items()),
    ),
    below="/v2",
    words={TRUNCATE: '"parameters": {"truncate": true}'},
)
