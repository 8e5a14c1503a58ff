"""The Open Inference Protocol, version 2, over HTTP: as Triton's and KServe's clients speak it."""

import re
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from serve.api.classification import classify, read_fields
from serve.api.context import AppContext
from serve.api.dialect import TRUNCATE, Dialect
from serve.api.infer_answer import infer_response
from serve.api.infer_body import InferRoute
from serve.api.infer_request import asked_outputs, tensors_in
from serve.api.oip.inputs import inputs_of
from serve.api.oip.parameters import NAMES, dial_of
from serve.api.oip.signature import VERSION
from serve.api.routes.classify import classify_errors
from serve.api.routes.hugging_face import error_text
from serve.api.routes.oip_models import add_model_routes, find_model
from serve.api.schemas.hugging_face import ErrorText
from serve.api.schemas.oip import IndexEntry, IndexRequest, InferRequest, InferResponse
from serve.errors import InvalidRequest, NotSupported

OIP = Dialect(
    "oip",
    re.compile(r"/v2(/.*)?", re.DOTALL),
    error_text,
    classifies=re.compile(r"/v2/models/[^/]+(/versions/[^/]+)?/infer"),
    reads=re.compile(r"/v2/repository/index"),
    probes=re.compile(r"/v2/health/(live|ready)"),
    words={TRUNCATE: '"parameters": {"truncate": true}'},
)

_INFER = "/v2/models/{model}/infer"
_INFER_VERSION = "/v2/models/{model}/versions/{version}/infer"

# Triton's, which this server does not have.
_LACKING = {
    "/v2/repository/models/{model}/load": "models are loaded when the server starts",
    "/v2/repository/models/{model}/unload": "models are loaded for as long as the server runs",
    "/v2/logging": "logging is set up when the server starts",
    "/v2/trace/setting": "tracing is set up when the server starts",
    "/v2/models/{model}/trace/setting": "tracing is set up when the server starts",
    "/v2/systemsharedmemory/{rest:path}": "there is no shared memory; send tensors in the body",
    "/v2/cudasharedmemory/{rest:path}": "there is no shared memory; send tensors in the body",
}


def add_oip_routes(app: FastAPI, context: AppContext) -> None:
    """Add the routes of the protocol."""
    add_model_routes(app, context)
    _add_index(app, context)
    for path, why in _LACKING.items():
        app.add_route(path, _refuse(why), methods=["GET", "POST"], include_in_schema=False)

    async def infer(request: Request, body: InferRequest, model: str) -> Response:
        """Classify the rows of tensors."""
        return await _infer(context, request, body, model)

    async def infer_version(
        request: Request, body: InferRequest, model: str, version: str
    ) -> Response:
        """Classify the rows of tensors; the only version of a model is 1."""
        return await _infer(context, request, body, model, version)

    for path, endpoint in ((_INFER, infer), (_INFER_VERSION, infer_version)):
        app.router.add_api_route(
            path,
            endpoint,
            methods=["POST"],
            tags=["Open Inference Protocol"],
            response_model=InferResponse,
            responses=_answers(),
            openapi_extra=_OR_BINARY,
            route_class_override=InferRoute,
        )


async def _infer(
    context: AppContext, request: Request, body: InferRequest, model: str, version: str = VERSION
) -> Response:
    classifier = find_model(context, model, version)
    if body.model_name not in (None, model):
        raise InvalidRequest(f"model_name: differs from {model!r}, the model of the path")
    asked = asked_outputs(body, classifier)
    parameters = dict(body.parameters or {})
    parameters.pop("binary_data_output", None)
    fields = {"model": model, "inputs": inputs_of(tensors_in(body)), **dial_of(parameters)}
    answered = await classify(context, request, read_fields(fields, request.headers, NAMES))
    return await infer_response(
        answered, asked, body.id, request.headers.get("accept-encoding", "")
    )


def _add_index(app: FastAPI, context: AppContext) -> None:
    async def index(request: Request, body: IndexRequest) -> Response:
        """List the models."""
        faults = context.catalog.faults()
        entries = [
            IndexEntry(name=c.name, version=VERSION, state=state, reason=reason)
            for c in context.catalog
            for state, reason in [
                ("UNAVAILABLE", "its engine does not run") if c.name in faults else ("READY", "")
            ]
            if state == "READY" or not body.ready
        ]
        return JSONResponse([entry.model_dump() for entry in entries])

    app.router.add_api_route(
        "/v2/repository/index",
        index,
        methods=["POST"],
        tags=["Open Inference Protocol"],
        response_model=list[IndexEntry],
        responses=_errors_of_bodies(),
        openapi_extra={"requestBody": {"required": False}},
        route_class_override=InferRoute,
    )


def _refuse(why: str) -> Callable[[Request], Any]:
    async def refuse(request: Request) -> Response:
        raise NotSupported(why)

    return refuse


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
