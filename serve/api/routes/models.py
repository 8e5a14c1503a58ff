"""The served models, as operators and OpenAI's clients see them."""

import asyncio
import os
from pathlib import Path
from typing import Final, Literal
from weakref import WeakKeyDictionary

from pydantic import Field

from serve.api.context import AppContext
from serve.api.request import Request
from serve.api.response import Response, json_response
from serve.api.route import Route
from serve.api.schemas import ResponseModel, ShownRule
from serve.api.shown import ShownScale
from serve.bundle.calibration import VariantCalibration
from serve.bundle.manifest import Precision
from serve.classifier.classifier import Classifier
from serve.policy.ladder import Certificate, Reference
from serve.policy.limits import Limits
from serve.policy.served_ladder import ServedLadder
from serve.rules import rules_for
from serve.rules.traits import Task
from serve.runtime.placement import Device

UNKNOWN_MODEL: Final = {404: "No such model."}


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
    noise: float = Field(
        description="Share by which expected_ms and speedup may be off; 0.1 is also said of a "
        "machine that was too busy to tell."
    )
    rungs: list[RungInfo]
    decisions: list[DecisionsInfo] = Field(
        description="The same for the decisions of each flag that is certified."
    )


class TableInfo(ResponseModel):
    """What may answer before the first layer, at layer 0."""

    buckets: int = Field(description="Rows that its 2-grams and 3-grams share.")
    temperature: float = Field(description="Temperature of its confidence.")


class SmallInfo(ResponseModel):
    """The small model in front, whose exits answer before the first layer."""

    name: str = Field(description="The name of its bundle.")
    exits: list[int] = Field(description="Its exit layers.")
    layer_cost: float = Field(description="What one of its layers takes, in layers of the model.")


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
    table: TableInfo | None = Field(
        description="The table that may answer before the first layer; null without one."
    )
    small: SmallInfo | None = Field(
        description="The small model in front that may answer before the first layer; null without "
        "one."
    )
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


async def list_models(context: AppContext, request: Request) -> Response:
    """List what is served."""
    return json_response(
        ModelList(
            object="list",
            data=[_card(classifier) for classifier in context.catalog],
            models=[_describe(classifier) for classifier in context.catalog],
            aliases=dict(context.catalog.aliases),
            repository=await _repository(context),
        )
    )


async def show_model(context: AppContext, request: Request) -> Response:
    """Describe one model: labels, exits, precision, and what its rules give."""
    return json_response(_describe(named_model(context, request)))


def named_model(context: AppContext, request: Request) -> Classifier:
    """Return the model that a path names, and note it.

    Raises:
        UnknownModel: there is none of that name.
    """
    classifier = context.catalog.find(request.params["model"])
    request.model = classifier.name
    return classifier


_TAG: Final = "models"
_PATH: Final = "/v1/models"
ROUTES: Final = (
    Route("GET", _PATH, list_models, "read", tag=_TAG, shown=ModelList),
    Route(
        "GET",
        f"{_PATH}/{{model}}",
        show_model,
        "read",
        tag=_TAG,
        shown=ModelInfo,
        errors=UNKNOWN_MODEL,
    ),
)


async def _repository(context: AppContext) -> list[LoadableBundle]:
    if context.changes is None:
        return []
    served = {c.bundle.folder: c.bundle.version for c in context.catalog}
    bundles = await asyncio.to_thread(context.changes.repository.bundles)
    found = {name: served.get(Path(os.path.realpath(path))) for name, path in bundles.items()}
    return [
        LoadableBundle(name=name, version=version, loaded=version is not None)
        for name, version in found.items()
    ]


def _card(classifier: Classifier) -> ModelCard:
    created = classifier.bundle.written_s
    return ModelCard(id=classifier.name, object="model", created=created, owned_by="offramp")


def _describe(classifier: Classifier) -> ModelInfo:
    manifest = classifier.bundle.manifest
    calibration = classifier.bundle.calibration
    calibrated_on = calibration.nearest(classifier.precision)
    return ModelInfo(
        name=classifier.name,
        ready=classifier.alive,
        task=manifest.task,
        labels=list(manifest.labels),
        pairs=classifier.inputs.takes_pairs,
        rules=rules_for(manifest.traits),
        layers=manifest.num_layers,
        exits=[
            ExitInfo(layer=layer, temperature=temperature)
            for layer, temperature in zip(
                manifest.exit_layers, classifier.temperatures, strict=True
            )
        ],
        small=SmallInfo.model_validate(manifest.small, from_attributes=True)
        if manifest.small
        else None,
        table=TableInfo.model_validate(manifest.table, from_attributes=True)
        if manifest.table
        else None,
        device=classifier.device,
        precision=classifier.precision,
        precisions=list(manifest.variants),
        max_tokens=manifest.max_tokens,
        vocab_size=classifier.inputs.vocab_size,
        token_types=classifier.inputs.num_types,
        policy_version=classifier.policy.current.version,
        bundle=classifier.bundle.sha256,
        score_scale=classifier.scores.score_scale,
        costs=_costs(classifier),
        ladder=_ladder(classifier.ladder),
        calibration=calibration.variants[calibrated_on] if calibrated_on else None,
        calibrated_on=calibrated_on,
    )


# Of each ladder: it stays as it is, and to describe it takes longer than all the rest.
_described: Final = WeakKeyDictionary[ServedLadder, LadderInfo]()


def _ladder(ladder: ServedLadder) -> LadderInfo:
    if ladder in _described:
        return _described[ladder]
    certified = ladder.certified
    _described[ladder] = described = LadderInfo(
        certified=certified is not None,
        note=ladder.uncertified,
        metric=certified.metric if certified else None,
        reference=certified.reference if certified else None,
        tolerance=certified.tolerance if certified else None,
        mean_tokens=ladder.mean_tokens,
        noise=round(ladder.noise, 4),
        rungs=_rungs(ladder),
        decisions=[
            DecisionsInfo(flag=each.flag, rungs=_rungs(ladder.deciding(each.flag)))
            for each in (certified.decisions if certified else ())
        ],
    )
    return described


def _rungs(ladder: ServedLadder) -> list[RungInfo]:
    return [RungInfo.model_validate(rung, from_attributes=True) for rung in ladder.rungs(Limits())]


def _costs(classifier: Classifier) -> list[SegmentCostInfo]:
    costs = classifier.costs.coefficients()
    exits = classifier.bundle.manifest.exit_layers
    # Where all layers share their weights, there is a cost per layer, and all are equal.
    return [
        SegmentCostInfo(
            layer=layer,
            fixed_ms=cost.fixed_s * 1e3,
            per_token_us=cost.per_token_s * 1e6,
            per_token_pair_ns=cost.per_token_pair_s * 1e9,
            example_ms=cost.seconds(1, 32) * 1e3,
        )
        for layer, cost in zip(exits, costs, strict=False)
    ]
