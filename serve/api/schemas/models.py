"""The JSON that describes the served models."""

from typing import Literal

from pydantic import Field

from serve.api.exit_report import ShownScale
from serve.api.schemas.base import ResponseModel
from serve.api.schemas.shown_rule import ShownRule
from serve.bundle.calibration import VariantCalibration
from serve.bundle.manifest import Precision
from serve.policy.ladder import Certificate, Reference
from serve.rules.traits import Task
from serve.runtime.placement import Device


class ExitInfo(ResponseModel):
    """An exit of a model."""

    layer: int
    temperature: float


class SegmentCostInfo(ResponseModel):
    """The time that one segment takes for a batch, measured on this machine.

    It is the sum of fixed_ms, of per_token_us for every token, padding included, and of
    per_token_pair_ns for every pair of tokens of the same text. Where all layers share their
    weights, the figures are those of a single layer.
    """

    layer: int = Field(description="The exit layer that the segment ends at.")
    fixed_ms: float
    per_token_us: float
    per_token_pair_ns: float
    example_ms: float = Field(description="The time of one text of 32 tokens.")


class RungInfo(ResponseModel):
    """A rule that targets may resolve to."""

    rule: ShownRule
    expected_layers: float = Field(description="Mean number of layers per text.")
    expected_ms: float = Field(
        description="Mean time on this machine from a text's first layer to its answer, of texts "
        "that are alone; measured at start. Other replicas may have measured slightly other times."
    )
    speedup: float = Field(description="Full depth's time over expected_ms.")
    disagreement: float | None = Field(
        description="Share of the certifying texts with another answer than at full depth."
    )
    reference_disagreement: float | None = Field(
        description="Share with another answer than the reference's; null without a reference."
    )
    certificates: list[Certificate] = Field(
        description="Bounds on what the rule loses; none for rules that are too fast to be "
        "certified. The rule `never` loses nothing against full depth: its certificates "
        "are about a reference alone."
    )


class DecisionsInfo(ResponseModel):
    """What targets about the decisions of a flag may resolve to."""

    flag: dict[str, float] = Field(description="The thresholds, by label.")
    rungs: list[RungInfo]


class LadderInfo(ResponseModel):
    """What targets may resolve to, from safe to fast, before the policy's limits."""

    certified: bool = Field(
        description="Whether rules were certified for just these weights, this precision and "
        "these exits."
    )
    note: str | None = Field(description="Why nothing is certified, and what helps.")
    metric: str | None = Field(description="What the loss `metric` is about, if it is certified.")
    reference: Reference | None = Field(
        description="The other classifier that the losses `reference` and `reference_score` are "
        "about."
    )
    tolerance: float | None = Field(
        description="For a regression: values further apart count as disagreement."
    )
    mean_tokens: float = Field(description="The length of text that expected_ms is about.")
    rungs: list[RungInfo]
    decisions: list[DecisionsInfo] = Field(
        description="The same for the decisions of each flag that is certified."
    )


class ModelInfo(ResponseModel):
    """A served model."""

    name: str
    ready: bool = Field(description="Whether its engine runs; KServe's clients look here.")
    task: Task = Field(
        description="The kind of answer: one label, any number of labels, a number, or a label "
        "for every token, grouped into entities. Each task has its own shape of result."
    )
    labels: list[str] = Field(description="Labels by id; for a regression, the name of the value.")
    pairs: bool = Field(description="Whether an input may be a pair of texts.")
    rules: list[str] = Field(description="Exit rules that the model can follow.")
    layers: int
    exits: list[ExitInfo]
    device: Device = Field(description="Where the model runs.")
    precision: Precision
    precisions: list[Precision] = Field(description="Variants in the bundle.")
    max_tokens: int = Field(description="Longest input, special tokens included.")
    vocab_size: int = Field(description="Token ids of inputs are below this number.")
    token_types: int = Field(
        description="Token types of inputs are below this number; 1 if the model has none."
    )
    policy_version: int
    bundle: str = Field(
        description="SHA-256 of the bundle's manifest, which names that of every other file. The "
        "header X-Offramp-Bundle of answers has its first 12 digits."
    )
    score_scale: ShownScale
    costs: list[SegmentCostInfo] = Field(
        description="The time of each segment; measured at start, then updated from live batches."
    )
    ladder: LadderInfo
    calibration: VariantCalibration | None = Field(
        description="How good the answers of each exit are; null if not measured."
    )
    calibrated_on: Precision | None = Field(
        description="The variant that the calibration was measured on. Another precision's "
        "figures are slightly different."
    )


class ModelCard(ResponseModel):
    """A served model as OpenAI's clients list it."""

    id: str
    object: Literal["model"]
    created: int = Field(description="When the bundle was written, in seconds since 1970.")
    owned_by: str


class LoadableBundle(ResponseModel):
    """A bundle that may be loaded while the server runs."""

    name: str
    version: str | None = Field(
        description="The first 12 digits of the SHA-256 of its manifest, if the bundle is served."
    )
    loaded: bool = Field(description="Whether a model is served from it.")


class ModelList(ResponseModel):
    """All served models; `object` and `data` are for OpenAI's clients."""

    object: Literal["list"]
    data: list[ModelCard]
    models: list[ModelInfo]
    aliases: dict[str, str] = Field(
        description="Further names that requests may give, and the model that each names now. "
        "Requests without a name are for the model of `default`, if there is such an alias."
    )
    repository: list[LoadableBundle]
