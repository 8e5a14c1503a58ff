"""The methods of `inference.GRPCInferenceService`, and which scope a key needs for each."""

from functools import partial
from typing import Any, Final

from google.protobuf.json_format import ParseDict

from serve.access.keys import Scope
from serve.api.context import AppContext
from serve.classifier.classifier import Classifier
from serve.dialects.oip.models import (
    EXTENSIONS,
    change_model,
    find_model,
    model_config,
    model_index,
    model_metadata,
    model_statistics,
)
from serve.dialects.oip.signature import PLATFORM, VERSION
from serve.errors import UnknownModel
from serve.http.grpc.call import Answer, Call
from serve.http.grpc.health import Health
from serve.http.grpc.inference import infer
from serve.http.grpc.messages import INFERENCE, types_of
from serve.version import __version__

# Of HTTP alone.
_BINARY: Final = "binary_tensor_data"


def methods_of(context: AppContext, health: Health) -> dict[str, tuple[Answer, Scope | None]]:
    """Return what answers each method, and the scope that it needs; None for none."""
    about = _About(context, health)
    return {
        "ServerLive": (about.live, None),
        "ServerReady": (about.ready, None),
        "ServerMetadata": (about.server, "read"),
        "ModelReady": (about.model_ready, "read"),
        "ModelMetadata": (about.model, "read"),
        "ModelConfig": (about.config, "read"),
        "ModelStatistics": (about.statistics, "read"),
        "RepositoryIndex": (about.index, "read"),
        "RepositoryModelLoad": (about.load, "admin"),
        "RepositoryModelUnload": (about.unload, "admin"),
        "ModelInfer": (partial(infer, context), "classify"),
    }


class _About:
    """What there is to be known of the server and its models."""

    def __init__(self, context: AppContext, health: Health) -> None:
        self._context = context
        self._health = health

    async def live(self, call: Call, request: Any) -> Any:
        return _answer("ServerLive", {"live": True})

    async def ready(self, call: Call, request: Any) -> Any:
        return _answer("ServerReady", {"ready": self._health.ready})

    async def server(self, call: Call, request: Any) -> Any:
        extensions = [name for name in EXTENSIONS if name != _BINARY]
        fields = {"name": PLATFORM, "version": __version__, "extensions": extensions}
        return _answer("ServerMetadata", fields)

    async def model_ready(self, call: Call, request: Any) -> Any:
        """Tell whether a model is ready; one that there is not is not ready either."""
        try:
            alive = self._find(request).engine.alive
        except UnknownModel:
            alive = False
        return _answer("ModelReady", {"ready": alive and not self._context.connections.stopping})

    async def model(self, call: Call, request: Any) -> Any:
        return _answer("ModelMetadata", model_metadata(self._find(request)).model_dump())

    async def config(self, call: Call, request: Any) -> Any:
        found = model_config(self._find(request), self._context.limits.max_inputs)
        return _answer("ModelConfig", {"config": found})

    async def statistics(self, call: Call, request: Any) -> Any:
        models = [self._find(request)] if request.name else list(self._context.catalog)
        found = await model_statistics(self._context, models)
        return _answer("ModelStatistics", found.model_dump())

    async def index(self, call: Call, request: Any) -> Any:
        models = await model_index(self._context, request.ready)
        return _answer("RepositoryIndex", {"models": models})

    async def load(self, call: Call, request: Any) -> Any:
        await change_model(self._context, call.record, request.model_name, True, request.parameters)
        return _answer("RepositoryModelLoad", {})

    async def unload(self, call: Call, request: Any) -> Any:
        await change_model(
            self._context, call.record, request.model_name, False, request.parameters
        )
        return _answer("RepositoryModelUnload", {})

    def _find(self, request: Any) -> Classifier:
        return find_model(self._context, request.name, request.version or VERSION)


def _answer(method: str, fields: dict[str, Any]) -> Any:
    """Return the answer of a method; of Triton's configuration, the fields that we declare."""
    _, answer = types_of(INFERENCE, method)
    return ParseDict(fields, answer(), ignore_unknown_fields=True)
