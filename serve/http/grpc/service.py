"""The methods of `inference.GRPCInferenceService`, and which scope a key needs for each."""

from functools import partial
from typing import Any, Final

from serve.access.keys import Scope
from serve.api.context import AppContext
from serve.api.oip.signature import PLATFORM, VERSION, TensorSpec, input_specs, output_specs
from serve.errors import OfframpError
from serve.http.grpc.call import Answer, Call
from serve.http.grpc.health import Health
from serve.http.grpc.inference import find_model, infer
from serve.http.grpc.messages import INFERENCE, types_of
from serve.version import __version__

EXTENSIONS: Final = ("classification", "model_configuration", "parameters", "schedule_policy")


def methods_of(context: AppContext, health: Health) -> dict[str, tuple[Answer, Scope | None]]:
    """Return what answers each method, and the scope that it needs; None for none."""
    models = _Models(context)

    async def live(call: Call, request: Any) -> Any:
        return types_of(INFERENCE, "ServerLive")[1](live=True)

    async def ready(call: Call, request: Any) -> Any:
        return types_of(INFERENCE, "ServerReady")[1](ready=health.ready)

    return {
        "ServerLive": (live, None),
        "ServerReady": (ready, None),
        "ServerMetadata": (models.server, "read"),
        "ModelReady": (models.ready, "read"),
        "ModelMetadata": (models.metadata, "read"),
        "ModelInfer": (partial(infer, context), "classify"),
    }


class _Models:
    """What there is to be known of the models."""

    def __init__(self, context: AppContext) -> None:
        self._context = context

    async def server(self, call: Call, request: Any) -> Any:
        answer = types_of(INFERENCE, "ServerMetadata")[1]
        return answer(name=PLATFORM, version=__version__, extensions=EXTENSIONS)

    async def ready(self, call: Call, request: Any) -> Any:
        """Tell whether a model is ready; one that there is not is not ready either."""
        answer = types_of(INFERENCE, "ModelReady")[1]
        try:
            classifier = find_model(self._context, request.name, request.version)
        except OfframpError:
            return answer(ready=False)
        return answer(ready=classifier.engine.alive and not self._context.connections.stopping)

    async def metadata(self, call: Call, request: Any) -> Any:
        classifier = find_model(self._context, request.name, request.version)
        return types_of(INFERENCE, "ModelMetadata")[1](
            name=classifier.name,
            versions=[VERSION],
            platform=PLATFORM,
            inputs=map(_shown, input_specs(classifier)),
            outputs=map(_shown, output_specs(classifier)),
        )


def _shown(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "datatype": spec.datatype, "shape": spec.shape}
