"""GET /v1/models and the live policy of each."""

import asyncio

from fastapi import APIRouter, Request

from serve.api.context import AppContext
from serve.api.request_body import BODY_ERRORS, JsonRoute
from serve.api.schemas.error import ErrorBody
from serve.api.schemas.models import ExitInfo, ModelInfo, ModelList, SegmentCostInfo
from serve.api.schemas.policy import PolicyChange, PolicyReport, PolicyUpdate, ReplicaAck
from serve.classifier.classifier import Classifier
from serve.rules import rules_for

_UNKNOWN = {"model": ErrorBody, "description": "No such model."}


def model_routes(site: AppContext) -> APIRouter:
    """Return the routes that describe models."""
    router = APIRouter(prefix="/v1/models", tags=["models"])

    @router.get("")
    async def list_models() -> ModelList:
        """List what is served."""
        return ModelList(models=[_describe(c) for c in site.catalog])

    @router.get("/{model}", responses={404: _UNKNOWN})
    async def show_model(model: str, request: Request) -> ModelInfo:
        """Describe one model: labels, exits, precision, and what its thresholds give."""
        classifier = site.catalog.find(model)
        request.state.model = classifier.name
        return _describe(classifier)

    return router


def policy_routes(site: AppContext) -> APIRouter:
    """Return the routes of the live policy."""
    router = APIRouter(prefix="/v1/models/{model}/policy", tags=["policy"], route_class=JsonRoute)

    @router.get("", responses={404: _UNKNOWN}, response_model_exclude_none=True)
    async def show_policy(model: str, request: Request) -> PolicyReport:
        """Show the policy that the next request is answered under."""
        classifier = site.catalog.find(model)
        request.state.model = classifier.name
        live = classifier.policy.current
        return PolicyReport(
            model=classifier.name, version=live.version, source=live.source, policy=live.policy
        )

    @router.put(
        "",
        response_model_exclude_none=True,
        responses={
            **BODY_ERRORS,
            404: _UNKNOWN,
            409: {"model": ErrorBody, "description": "Another version is current."},
            422: {"model": ErrorBody, "description": "The model cannot follow this policy."},
        },
    )
    async def replace_policy(model: str, body: PolicyUpdate, request: Request) -> PolicyChange:
        """Replace the policy in every replica, from the next request on.

        Applied whole or not at all. The answer lists the replicas that apply it.
        """
        classifier = site.catalog.find(model)
        request.state.model = classifier.name
        # On a thread: the store may be a network away.
        entry = await asyncio.to_thread(classifier.policy.replace, body.policy, body.version)
        refreshed = await site.replicas.refresh_policy(classifier.name)
        return PolicyChange(
            model=classifier.name,
            version=entry.version,
            source=entry.source,
            policy=entry.policy,
            replicas=[ReplicaAck(replica=a.replica, version=a.version) for a in refreshed.acks],
            unconfirmed=refreshed.unconfirmed,
        )

    return router


def _describe(classifier: Classifier) -> ModelInfo:
    manifest = classifier.bundle.manifest
    calibration = classifier.bundle.calibration
    measured = calibration.nearest(classifier.precision)
    return ModelInfo(
        name=classifier.name,
        task=manifest.task,
        labels=list(manifest.labels),
        pairs=classifier.inputs.takes_pairs,
        rules=rules_for(manifest.traits),
        layers=manifest.num_layers,
        exits=[ExitInfo(layer=e.layer, temperature=e.temperature) for e in manifest.exits],
        device=classifier.device,
        precision=classifier.precision,
        precisions=list(manifest.variants),
        max_tokens=manifest.max_tokens,
        vocab_size=classifier.inputs.vocab_size,
        token_types=classifier.inputs.num_types,
        policy_version=classifier.policy.current.version,
        costs=_costs(classifier),
        calibration=calibration.variants[measured] if measured else None,
        calibrated_on=measured,
    )


def _costs(classifier: Classifier) -> list[SegmentCostInfo]:
    costs = classifier.costs.coefficients()
    exits = classifier.bundle.manifest.exit_layers
    # Layers that are one and the same cost the same, with an exit or without.
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
