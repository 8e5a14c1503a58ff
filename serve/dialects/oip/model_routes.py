"""The server and its models in the terms of the Open Inference Protocol, and their changes."""

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any, Final

from serve.api.context import AppContext
from serve.api.request import Request
from serve.api.response import Response, json_response
from serve.api.route import Handler, Route
from serve.api.routes.model_changes import changes_of
from serve.api.routes.operations import NOT_READY, check_ready
from serve.api.shown import to_json
from serve.api.trail import to_its_end
from serve.classifier.classifier import Classifier
from serve.dialects.oip.infer_request import PRIORITIES
from serve.dialects.oip.schemas import (
    BYTES,
    PLATFORM,
    VERSION,
    ModelMetadata,
    TensorSpec,
    input_specs,
    output_specs,
)
from serve.dialects.oip.statistics import statistics_of
from serve.errors import InvalidTensor, Unavailable, UnknownModel
from serve.version import __version__

EXTENSIONS = [
    "binary_tensor_data",
    "classification",
    "model_configuration",
    "model_repository",
    "parameters",
    "schedule_policy",
    "statistics",
]

# Triton's clients send it with every unload; other parameters would change the configuration or
# the files of the model.
_HARMLESS: Final = "unload_dependents"

TAG: Final = "Open Inference Protocol"


def find_model(context: AppContext, model: str, version: str) -> Classifier:
    """Return a model.

    Raises:
        UnknownModel: there is none of this name and version.
    """
    classifier = context.catalog.find(model)
    check_version(classifier, version)
    return classifier


def check_version(classifier: Classifier, version: str) -> None:
    """Refuse another version than the only one.

    Raises:
        UnknownModel: the model has none such.
    """
    if version != VERSION:
        raise UnknownModel(f"{classifier.name} has no version {version[:64]!r}, only {VERSION!r}")


async def server_metadata(context: AppContext, request: Request) -> Response:
    """Describe the server."""
    return _shown(name=PLATFORM, version=__version__, extensions=EXTENSIONS)


async def server_live(context: AppContext, request: Request) -> Response:
    """Tell whether the process answers."""
    return _shown(live=True)


async def server_ready(context: AppContext, request: Request) -> Response:
    """Tell whether every model is loaded and warmed, its engine runs, and no stop is near."""
    check_ready(context)
    return _shown(ready=True)


async def all_statistics(context: AppContext, request: Request) -> Response:
    """Tell what all models have done since the server started."""
    return _shown(model_stats=await model_statistics(context, list(context.catalog)))


def _of_path(context: AppContext, request: Request) -> Classifier:
    """Return the model of a path, which may name its only version."""
    return find_model(context, request.params["model"], request.params.get("version", VERSION))


async def _metadata(context: AppContext, request: Request) -> Response:
    return json_response(model_metadata(_of_path(context, request)))


async def _ready(context: AppContext, request: Request) -> Response:
    classifier = _of_path(context, request)
    if context.connections.stopping or not classifier.alive:
        raise Unavailable(f"{classifier.name} is not ready")
    return _shown(name=classifier.name, ready=True)


async def _config(context: AppContext, request: Request) -> Response:
    return _shown(**model_config(_of_path(context, request), context.limits.max_inputs))


async def _statistics(context: AppContext, request: Request) -> Response:
    return _shown(model_stats=await model_statistics(context, [_of_path(context, request)]))


def _shown(**fields: Any) -> Response:
    return Response(to_json(fields))


def _of_model(path: str, said: str, handle: Handler, shown: Any) -> Iterator[Route]:
    """Return a route for a model, and one for its only version."""
    errors = {404: "No such model or version.", **(NOT_READY if path == "/ready" else {})}
    for name, below, what in (
        ("of_model", "", said),
        ("of_version", "/versions/{version}", f"{said} of the only version, 1"),
    ):
        yield Route(
            "GET",
            f"/v2/models/{{model}}{below}{path}",
            handle,
            "read",
            tag=TAG,
            shown=shown,
            errors=errors,
            more={"name": name, "summary": what},
        )


_JSON: Final = dict[str, Any]
_HEALTH: Final = "/v2/health"
MODEL_ROUTES: Final = (
    Route("GET", "/v2", server_metadata, "read", tag=TAG, shown=_JSON),
    Route("GET", f"{_HEALTH}/live", server_live, None, probe=True, tag=TAG, shown=_JSON),
    Route(
        "GET",
        f"{_HEALTH}/ready",
        server_ready,
        None,
        probe=True,
        tag=TAG,
        shown=_JSON,
        errors=NOT_READY,
    ),
    Route("GET", "/v2/models/stats", all_statistics, "read", tag=TAG, shown=_JSON),
    *_of_model("", "Inputs and outputs of a model", _metadata, ModelMetadata),
    *_of_model("/ready", "Readiness of a model", _ready, _JSON),
    *_of_model("/config", "Triton's configuration of a model", _config, _JSON),
    *_of_model("/stats", "Statistics of a model", _statistics, _JSON),
)


def model_metadata(classifier: Classifier) -> ModelMetadata:
    """Return what a model takes and gives."""
    return ModelMetadata(
        name=classifier.name,
        versions=[VERSION],
        platform=PLATFORM,
        inputs=input_specs(classifier),
        outputs=output_specs(classifier),
        properties={"bundle": classifier.bundle.sha256},
    )


def model_config(classifier: Classifier, max_inputs: int) -> dict[str, Any]:
    """Return the configuration of a model that takes so many rows in a request."""
    return {
        "name": classifier.name,
        "platform": PLATFORM,
        "backend": PLATFORM,
        "max_batch_size": max_inputs,
        "input": [{**_entry(spec), "optional": True} for spec in input_specs(classifier)],
        "output": [_entry(spec) for spec in output_specs(classifier)],
        "dynamic_batching": {"priority_levels": max(PRIORITIES), "default_priority_level": 2},
        "parameters": {"bundle": {"string_value": classifier.bundle.sha256}},
        "model_transaction_policy": {"decoupled": False},
    }


def _entry(spec: TensorSpec) -> dict[str, Any]:
    datatype = "STRING" if spec.datatype == BYTES else spec.datatype
    dims = list(spec.shape[1:])  # without the rows, which `max_batch_size` speaks of
    return {"name": spec.name, "data_type": f"TYPE_{datatype}", "dims": dims}


async def model_index(context: AppContext, only_ready: bool) -> list[dict[str, Any]]:
    """Return an `IndexEntry` for each model and each bundle that could be loaded, as JSON."""
    states = {c.name: ("READY", "") for c in context.catalog}
    states |= dict.fromkeys(context.catalog.faults(), ("UNAVAILABLE", "its engine does not run"))
    if context.changes:
        bundles = await asyncio.to_thread(context.changes.repository.bundles)
        states = dict.fromkeys(bundles, ("UNAVAILABLE", "not loaded")) | states
    return [
        {"name": name, "version": VERSION, "state": state, "reason": reason}
        for name, (state, reason) in states.items()
        if state == "READY" or not only_ready
    ]


async def model_statistics(
    context: AppContext, classifiers: list[Classifier]
) -> list[dict[str, Any]]:
    """Return what models have done, on all replicas."""
    page = await context.replicas.metrics_text()
    # On a thread: reading a page takes many milliseconds.
    return await asyncio.to_thread(lambda: [statistics_of(page, each) for each in classifiers])


async def change_model(
    context: AppContext, request: Request, name: str, load: bool, parameters: Iterable[str]
) -> None:
    """Load a model, or its bundle anew, in every replica; or serve it no more.

    Raises:
        OfframpError: it cannot be done; nothing has changed.
    """
    if others := sorted(set(parameters) - {_HARMLESS}):
        raise InvalidTensor(
            f"parameters: {others[0][:64]!r} is not taken: a model is loaded as its bundle is; "
            "leave it out"
        )
    changes = changes_of(context)
    change = changes.load(request, name, None) if load else changes.unload(request, name)
    await to_its_end(request, change)
