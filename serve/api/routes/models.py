"""GET /v1/models."""

import asyncio
from typing import Final

from serve.api.context import AppContext
from serve.api.documented import errors
from serve.api.request import Request
from serve.api.response import Response, json_response
from serve.api.route import Route
from serve.api.schemas.models import (
    DecisionsInfo,
    ExitInfo,
    LadderInfo,
    LoadableBundle,
    ModelCard,
    ModelInfo,
    ModelList,
    RungInfo,
    SegmentCostInfo,
)
from serve.classifier.classifier import Classifier
from serve.policy.limits import Limits
from serve.policy.served_ladder import ServedLadder
from serve.rules import rules_for

UNKNOWN_MODEL: Final = errors({404: "No such model."})


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


_LIST: Final = {"tags": ["models"], "response_model": ModelList}
_SHOW: Final = {"tags": ["models"], "response_model": ModelInfo, "responses": UNKNOWN_MODEL}
ROUTES: Final = (
    Route("GET", "/v1/models", list_models, "read", documented=_LIST),
    Route("GET", "/v1/models/{model}", show_model, "read", documented=_SHOW),
)


async def _repository(context: AppContext) -> list[LoadableBundle]:
    if context.changes is None:
        return []
    names = await asyncio.to_thread(context.changes.repository.bundles)
    served = {c.bundle.folder.name: c.bundle.version for c in context.catalog}
    return [LoadableBundle(name=n, version=served.get(n), loaded=n in served) for n in names]


def _card(classifier: Classifier) -> ModelCard:
    created = classifier.bundle.written_s
    return ModelCard(id=classifier.name, object="model", created=created, owned_by="offramp")


def _describe(classifier: Classifier) -> ModelInfo:
    manifest = classifier.bundle.manifest
    calibration = classifier.bundle.calibration
    calibrated_on = calibration.nearest(classifier.precision)
    return ModelInfo(
        name=classifier.name,
        ready=classifier.engine.alive,
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


def _ladder(ladder: ServedLadder) -> LadderInfo:
    certified = ladder.certified
    return LadderInfo(
        certified=certified is not None,
        note=ladder.uncertified,
        metric=certified.metric if certified else None,
        reference=certified.reference if certified else None,
        tolerance=certified.tolerance if certified else None,
        mean_tokens=ladder.mean_tokens,
        rungs=_rungs(ladder),
        decisions=[
            DecisionsInfo(flag=each.flag, rungs=_rungs(ladder.deciding(each.flag)))
            for each in (certified.decisions if certified else ())
        ],
    )


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
