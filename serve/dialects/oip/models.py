"""What the Open Inference Protocol says of the server and of its models."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import FastAPI

from serve.api.context import AppContext
from serve.api.routes.operations import check_ready
from serve.api.schemas.error import ErrorText
from serve.classifier.classifier import Classifier
from serve.dialects.oip.config import model_config
from serve.dialects.oip.schemas import (
    Live,
    ModelMetadata,
    ModelReady,
    Ready,
    ServerMetadata,
    Statistics,
    TensorMetadata,
)
from serve.dialects.oip.signature import (
    PLATFORM,
    VERSION,
    TensorSpec,
    input_specs,
    output_specs,
)
from serve.dialects.oip.statistics import statistics_of
from serve.errors import Unavailable, UnknownModel
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

_OPTIONS: dict[str, Any] = {"tags": ["Open Inference Protocol"]}
_DEFAULT: dict[int | str, dict[str, Any]] = {
    "default": {"model": ErrorText, "description": "Any other error."}
}
_NOT_READY: dict[int | str, dict[str, Any]] = {
    503: {"model": ErrorText, "description": "Not ready, or not any more."}
}
_UNKNOWN: dict[int | str, dict[str, Any]] = {
    404: {"model": ErrorText, "description": "No such model or version."}
}


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


def add_model_routes(app: FastAPI, context: AppContext) -> None:
    """Add the routes that describe the server and its models."""
    _add_server_routes(app, context)

    async def all_statistics() -> Statistics:
        """Tell what all models have done since the server started."""
        return await model_statistics(context, list(context.catalog))

    app.get("/v2/models/stats", responses=_DEFAULT, **_OPTIONS)(all_statistics)

    async def metadata(classifier: Classifier) -> ModelMetadata:
        return model_metadata(classifier)

    async def ready(classifier: Classifier) -> ModelReady:
        if context.connections.stopping or not classifier.engine.alive:
            raise Unavailable(f"{classifier.name} is not ready")
        return ModelReady(name=classifier.name, ready=True)

    async def config(classifier: Classifier) -> dict[str, Any]:
        return model_config(classifier, context.limits.max_inputs)

    async def statistics(classifier: Classifier) -> Statistics:
        return await model_statistics(context, [classifier])

    _add(app, context, "", "Inputs and outputs of a model", metadata, ModelMetadata)
    _add(app, context, "/ready", "Readiness of a model", ready, ModelReady)
    _add(app, context, "/config", "Triton's configuration of a model", config, dict[str, Any])
    _add(app, context, "/stats", "Statistics of a model", statistics, Statistics)


def _add_server_routes(app: FastAPI, context: AppContext) -> None:
    @app.get("/v2", responses=_DEFAULT, **_OPTIONS)
    async def server_metadata() -> ServerMetadata:
        """Describe the server."""
        return ServerMetadata(name=PLATFORM, version=__version__, extensions=EXTENSIONS)

    @app.get("/v2/health/live", responses=_DEFAULT, **_OPTIONS)
    async def server_live() -> Live:
        """Tell whether the process answers."""
        return Live(live=True)

    @app.get("/v2/health/ready", responses=_DEFAULT | _NOT_READY, **_OPTIONS)
    async def server_ready() -> Ready:
        """Tell whether every model is loaded and warmed, its engine runs, and no stop is near."""
        check_ready(context)
        return Ready(ready=True)


def _add(
    app: FastAPI,
    context: AppContext,
    path: str,
    said: str,
    make: Callable[[Classifier], Awaitable[Any]],
    shape: Any,
) -> None:
    """Add a route for a model, and one for its only version."""

    async def of_model(model: str) -> Any:
        return await make(find_model(context, model, VERSION))

    async def of_version(model: str, version: str) -> Any:
        return await make(find_model(context, model, version))

    options = {
        **_OPTIONS,
        "response_model": shape,
        "responses": _DEFAULT | _UNKNOWN | (_NOT_READY if path == "/ready" else {}),
    }
    app.get(f"/v2/models/{{model}}{path}", summary=said, **options)(of_model)
    versioned = f"/v2/models/{{model}}/versions/{{version}}{path}"
    app.get(versioned, summary=f"{said} of the only version, 1", **options)(of_version)


def model_metadata(classifier: Classifier) -> ModelMetadata:
    """Return what a model takes and gives."""
    return ModelMetadata(
        name=classifier.name,
        versions=[VERSION],
        platform=PLATFORM,
        inputs=[_tensor(spec) for spec in input_specs(classifier)],
        outputs=[_tensor(spec) for spec in output_specs(classifier)],
        properties={"bundle": classifier.bundle.sha256},
    )


def _tensor(spec: TensorSpec) -> TensorMetadata:
    return TensorMetadata(name=spec.name, datatype=spec.datatype, shape=list(spec.shape))


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


async def model_statistics(context: AppContext, classifiers: list[Classifier]) -> Statistics:
    """Return what models have done, on all replicas."""
    page = (await context.replicas.metrics_text()).decode()
    # On a thread: reading a page takes many milliseconds.
    stats = await asyncio.to_thread(lambda: [statistics_of(page, each) for each in classifiers])
    return Statistics(model_stats=stats)
