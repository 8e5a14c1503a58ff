"""What a deployment may be told: arguments at start, policies at any time."""

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt

from serve.api.context import WebLimits
from serve.classifier.options import EngineOptions
from serve.engine.admission import QueueLimits
from serve.policy.document import Policy


class ServerConfig(BaseModel):
    """Arguments of the server; a change restarts the replicas.

    Attributes:
        bundles: folders, each served under its name.
        device: `auto`, `cpu` or `cuda`; auto is CUDA where it can be had.
        precision: `auto`, or the variant to use.
        gpu_memory_gb: what a replica may occupy on a GPU; None for no limit.
        active_exits: by model, the exit layers to use; all where a model is left out.
        num_threads: per replica; None for all cores that it may use.
        max_queue_rows: rows admitted and not yet answered, per replica and model.
        max_queue_tokens: their tokens.
        max_inputs: texts per request.
        max_body_bytes: largest request body.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    bundles: list[str] = Field(min_length=1)
    device: str = Field(default="auto", pattern="^(auto|cpu|cuda)$")
    precision: str = Field(default="auto", pattern="^(auto|fp32|int8|fp16)$")
    gpu_memory_gb: PositiveFloat | None = None
    active_exits: dict[str, list[PositiveInt]] = {}
    num_threads: PositiveInt | None = None
    max_queue_rows: PositiveInt = QueueLimits().max_rows
    max_queue_tokens: PositiveInt = QueueLimits().max_tokens
    max_inputs: PositiveInt = WebLimits().max_inputs
    max_body_bytes: PositiveInt = WebLimits().max_body_bytes

    @property
    def engine_options(self) -> EngineOptions:
        """How models are run."""
        return EngineOptions(
            device=self.device,
            precision=self.precision,
            gpu_memory_gb=self.gpu_memory_gb,
            num_threads=self.num_threads,
            queue_limits=QueueLimits(self.max_queue_rows, self.max_queue_tokens),
        )

    @property
    def web_limits(self) -> WebLimits:
        """Bounds on one request."""
        return WebLimits(max_body_bytes=self.max_body_bytes, max_inputs=self.max_inputs)


class UserConfig(BaseModel):
    """Ray Serve's `user_config`: baseline policies; a change is applied in place.

    Attributes:
        policies: by model; a model that is left out starts from its bundle's policy.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    policies: dict[str, Policy] = {}
