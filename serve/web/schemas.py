"""JSON shapes of the HTTP API."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, StringConstraints, Tag

from serve.calibration import VariantCalibration
from serve.manifest import Precision
from serve.policy import Policy, Wish
from serve.tokens import Text

NonEmpty = Annotated[str, StringConstraints(strict=True, pattern=r"\S")]

MAX_TIMEOUT_MS = 600_000


class _Request(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class _Response(BaseModel):
    model_config = ConfigDict(frozen=True, json_schema_serialization_defaults_required=True)


class TextInput(_Request):
    """A text, or a pair of texts for models that take two."""

    text: NonEmpty
    text_pair: NonEmpty | None = None


def _kind_of_input(value: Any) -> str | None:
    if isinstance(value, list):
        return "<list>"
    return _one_input(value)


def _one_input(value: Any) -> str | None:
    if isinstance(value, str):
        return "<text>"
    return "<object>" if isinstance(value, dict | TextInput) else None


OneInput = Annotated[
    Annotated[NonEmpty, Tag("<text>")] | Annotated[TextInput, Tag("<object>")],
    Discriminator(
        _one_input,
        custom_error_type="input",
        custom_error_message='must be a text or an object {"text": ..., "text_pair": ...}',
    ),
]

Inputs = Annotated[
    Annotated[NonEmpty, Tag("<text>")]
    | Annotated[TextInput, Tag("<object>")]
    # Fail fast: to name a million wrong items takes seconds, on the event loop.
    | Annotated[list[OneInput], Field(min_length=1, fail_fast=True), Tag("<list>")],
    Discriminator(
        _kind_of_input,
        custom_error_type="inputs",
        custom_error_message='must be a text, an object {"text": ..., "text_pair": ...}, '
        "or a list of them",
    ),
]


class ClassifyRequest(_Request):
    """What to classify, and when each text may leave the model."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"inputs": "The movie was awesome."},
                {
                    "inputs": ["The movie was awesome.", "You are good at messing up."],
                    "exit": {"rule": "entropy", "threshold": 0.2, "min_layer": 2},
                    "top_k": 1,
                    "timeout_ms": 500,
                },
            ]
        }
    )

    model: str | None = Field(
        default=None, description="Which model; may be left out when only one is served."
    )
    inputs: Inputs = Field(description="A text, an object, or a list of them.")
    exit: Wish | None = Field(
        default=None, description="A rule, or the name of a profile; default: the policy's."
    )
    top_k: int | None = Field(default=None, ge=1, description="Return only the k best scores.")
    timeout_ms: float | None = Field(
        default=None,
        gt=0,
        le=MAX_TIMEOUT_MS,
        description="When this time is over, a text leaves with the best answer it has so far "
        "(reason `deadline`); with none, the answer is an error 504.",
    )
    truncate: bool = Field(default=False, description="Cut texts that are too long.")
    priority: Literal["high", "normal", "low"] = Field(
        default="normal",
        description="Which waiting texts go first; one that has waited long goes before others.",
    )

    def texts(self) -> list[Text]:
        """Return the inputs as a list."""
        inputs = self.inputs if isinstance(self.inputs, list) else [self.inputs]
        return [Text(i) if isinstance(i, str) else Text(i.text, i.text_pair) for i in inputs]


class ExitReport(_Response):
    """Where and why a text left."""

    layer: int = Field(description="Transformer layers executed for this answer.")
    layers: int = Field(description="Layers the model has.")
    reason: Literal["confident", "patience", "layer", "max_layer", "final", "deadline"]
    signal: float | None = Field(
        description="The rule's signal at the exit: entropy in nats, confidence, or the number "
        "of agreeing exits; null for rules without one."
    )


class Result(_Response):
    """The answer to one input."""

    label: str
    score: float = Field(description="The label's probability.")
    scores: dict[str, float] = Field(description="Probability by label, best first.")
    exit: ExitReport


class Timing(_Response):
    """Where the time went; of several inputs, the longest."""

    queue_ms: float = Field(description="From admission to the first layer.")
    compute_ms: float = Field(description="From the first layer to the answer.")
    total_ms: float = Field(description="From the request's arrival to its answer.")


class ClassifyResponse(_Response):
    """Results in the order of the inputs."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "model": "sst2-minilm",
                    "policy_version": 1,
                    "results": [
                        {
                            "label": "positive",
                            "score": 0.993,
                            "scores": {"positive": 0.993, "negative": 0.007},
                            "exit": {
                                "layer": 2,
                                "layers": 6,
                                "reason": "confident",
                                "signal": 0.0417,
                            },
                        }
                    ],
                    "timing": {"queue_ms": 0.1, "compute_ms": 1.2, "total_ms": 1.9},
                }
            ]
        }
    )

    model: str
    policy_version: int
    results: list[Result]
    timing: Timing


class ExitInfo(_Response):
    """An exit of a model."""

    layer: int
    temperature: float


class SegmentCostInfo(_Response):
    """What running one segment on some texts together takes, measured on this machine.

    The time is fixed_ms, and per_token_us for every token of every text, padding included, and
    per_token_pair_ns for every pair of tokens of the same text. Where all layers are one, the
    figures are those of a single layer, whichever exit they stand at.
    """

    layer: int = Field(description="The exit layer that the segment ends at.")
    fixed_ms: float
    per_token_us: float
    per_token_pair_ns: float
    example_ms: float = Field(description="The time of one text of 32 tokens.")


class ModelInfo(_Response):
    """What a served model is."""

    name: str
    task: str
    labels: list[str]
    layers: int
    exits: list[ExitInfo]
    precision: Precision
    precisions: list[Precision] = Field(description="Variants in the bundle.")
    max_tokens: int
    policy_version: int
    costs: list[SegmentCostInfo] = Field(
        description="What each segment costs; measured at start and kept fresh."
    )
    calibration: VariantCalibration | None = Field(
        description="What thresholds cost and save; null if nobody has measured it."
    )
    calibrated_on: Precision | None = Field(
        description="The variant that the figures were measured on. On another precision the "
        "same threshold gives slightly other figures."
    )


class ModelList(_Response):
    """Everything that is served."""

    models: list[ModelInfo]


class PolicyReport(_Response):
    """The live policy."""

    model: str
    version: int
    source: Literal["bundle", "config", "api"] = Field(
        description="Where it comes from: the bundle, the deployment's config, or a PUT."
    )
    policy: Policy


class ReplicaAck(_Response):
    """A replica and the policy version that it now applies."""

    replica: str
    version: int


class PolicyChange(PolicyReport):
    """The new policy and the replicas that apply it already."""

    replicas: list[ReplicaAck]
    unconfirmed: int = Field(
        description="Replicas that did not confirm in time; they follow within seconds."
    )


class PolicyUpdate(_Request):
    """A whole new policy, applied at once or not at all."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "version": 1,
                    "policy": {
                        "default": "balanced",
                        "profiles": {
                            "exact": {"rule": "never"},
                            "balanced": {"rule": "entropy", "threshold": 0.2},
                            "fast": {"rule": "patience", "patience": 1},
                        },
                        "limits": {"overrides": "any", "min_layer": 2},
                    },
                }
            ]
        }
    )

    policy: Policy
    version: int | None = Field(
        default=None,
        ge=1,
        description="The version this change was made from; 409 if another one is current. "
        "Without it, whatever is current is replaced.",
    )


class Problem(_Response):
    """What went wrong."""

    code: str
    message: str


class ErrorBody(_Response):
    """The body of every answer that is not 2xx."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "error": {
                        "code": "invalid_request",
                        "message": "exit.threshold: must be greater than or equal to 0, not -1",
                    }
                }
            ]
        }
    )

    error: Problem


class Health(_Response):
    """`ok`, or why not."""

    status: str
