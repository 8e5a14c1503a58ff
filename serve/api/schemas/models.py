"""The JSON that describes what is served."""

from pydantic import Field

from serve.api.schemas.base import ResponseModel
from serve.bundle.calibration import VariantCalibration
from serve.bundle.manifest import Precision
from serve.rules.traits import Task
from serve.runtime.placement import Device


class ExitInfo(ResponseModel):
    """An exit of a model."""

    layer: int
    temperature: float


class SegmentCostInfo(ResponseModel):
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


class ModelInfo(ResponseModel):
    """What a served model is."""

    name: str
    task: Task = Field(
        description="What answers are: one label, any number of labels, a number, or a label for "
        "every token, put together to entities. Each has a result shape of its own."
    )
    labels: list[str] = Field(description="By label id; of a regression, the value's name.")
    pairs: bool = Field(description="Whether an input may be a pair of texts.")
    rules: list[str] = Field(description="Exit rules that the model can follow.")
    layers: int
    exits: list[ExitInfo]
    device: Device = Field(description="Where it runs.")
    precision: Precision
    precisions: list[Precision] = Field(description="Variants in the bundle.")
    max_tokens: int = Field(description="Longest input, special tokens included.")
    vocab_size: int = Field(description="Token ids of inputs are below it.")
    token_types: int = Field(description="Likewise token types; 1 if the model has none.")
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


class ModelList(ResponseModel):
    """Everything that is served."""

    models: list[ModelInfo]
