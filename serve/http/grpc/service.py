"""The methods of `inference.GRPCInferenceService`, and which scope a key needs for each."""

from functools import partial
from typing import Any, Final

from serve.access.keys import Scope
from serve.api.context import AppContext
from serve.classifier.classifier import Classifier
from serve.dialects.oip.model_routes import (
    EXTENSIONS,
    change_model,
    find_model,
    model_config,
    model_index,
    model_metadata,
    model_statistics,
)
from serve.dialects.oip.schemas import PLATFORM, VERSION
from serve.errors import UnknownModel
from serve.http.grpc.call import Answer, Call
from serve.http.grpc.health import HealthService
from serve.http.grpc.inference import infer
from serve.version import __version__

# This extension is for HTTP alone.
_BINARY: Final = "binary_tensor_data"


def methods_of(
    context: AppContext, health: HealthService
) -> dict[str, tuple[Answer, Scope | None]]:
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
    """Describes the server and its models, and changes the models."""

    def __init__(self, context: AppContext, health: HealthService) -> None:
        self._context = context
        self._health = health

    async def live(self, call: Call, message: Any) -> Any:
        return {"live": True}

    async def ready(self, call: Call, message: Any) -> Any:
        return {"ready": self._health.ready}

    async def server(self, call: Call, message: Any) -> Any:
        extensions = [name for name in EXTENSIONS if name != _BINARY]
        fields = {"name": PLATFORM, "version": __version__, "extensions": extensions}
        return fields

    async def model_ready(self, call: Call, message: Any) -> Any:
        """Tell whether a model is ready; one that there is not is not ready either."""
        try:
            alive = self._find(message).alive
        except UnknownModel:
            alive = False
        return {"ready": alive and not self._context.connections.stopping}

    async def model(self, call: Call, message: Any) -> Any:
        return model_metadata(self._find(message)).model_dump(mode="json")

    async def config(self, call: Call, message: Any) -> Any:
        found = model_config(self._find(message), self._context.limits.max_inputs)
        return {"config": found}

    async def statistics(self, call: Call, message: Any) -> Any:
        models = [self._find(message)] if message.name else list(self._context.catalog)
        return {"model_stats": await model_statistics(self._context, models)}

    async def index(self, call: Call, message: Any) -> Any:
        models = await model_index(self._context, message.ready)
        return {"models": models}

    async def load(self, call: Call, message: Any) -> Any:
        await self._change(call, message, True)
        return {}

    async def unload(self, call: Call, message: Any) -> Any:
        await self._change(call, message, False)
        return {}

    def _find(self, message: Any) -> Classifier:
        return find_model(self._context, message.name, message.version or VERSION)

    async def _change(self, call: Call, message: Any, load: bool) -> None:
        name, parameters = message.model_name, message.parameters
        await change_model(self._context, call.request, name, load, parameters)
