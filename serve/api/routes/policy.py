"""The live policy of a model."""

import asyncio
from functools import partial

from fastapi import FastAPI, Request, Response

from serve.api.classification import Reply
from serve.api.context import AppContext
from serve.api.documented import body_errors
from serve.api.endpoint import Endpoint
from serve.api.errors import expected
from serve.api.precondition import read_precondition, tag_of
from serve.api.record import RequestRecord, record_of
from serve.api.replicas import Ack
from serve.api.routes.models import UNKNOWN_MODEL
from serve.api.schemas.error import ErrorBody
from serve.api.schemas.policy import (
    PolicyChange,
    PolicyReport,
    PolicyUpdate,
    ReplicaAck,
    ResolvedExit,
)
from serve.api.trail import note_change
from serve.policy.applied import AppliedPolicy
from serve.policy.live import VersionedPolicy


def add_policy_routes(app: FastAPI, context: AppContext) -> None:
    """Add the routes that show and replace the live policy."""
    path = "/v1/models/{model}/policy"

    @app.get(path, tags=["policy"], responses=UNKNOWN_MODEL, response_model_exclude_none=True)
    async def show_policy(model: str, request: Request, response: Response) -> PolicyReport:
        """Show the policy that the next request is answered under."""
        classifier = context.catalog.find(model)
        record_of(request.scope).model = classifier.name
        entry, applied = classifier.policy.live
        response.headers["ETag"] = tag_of(entry.version)
        return PolicyReport(
            model=classifier.name,
            **PolicyReport.fields_of(entry),
            policy=entry.policy,
            resolved=_resolved(applied),
            config_problem=context.catalog.config_problem,
        )

    Endpoint(
        path,
        PolicyUpdate,
        replace_policy,
        {
            "tags": ["policy"],
            "response_model": PolicyChange,
            "responses": {
                **body_errors(),
                **UNKNOWN_MODEL,
                409: {"model": ErrorBody, "description": "Another version is current."},
                412: {"model": ErrorBody, "description": "No version of If-Match is current."},
                428: {"model": ErrorBody, "description": "Neither version nor If-Match came."},
                422: {"model": ErrorBody, "description": "The model cannot follow this policy."},
                429: {"model": ErrorBody, "description": "As many changes wait as may."},
                503: {
                    "model": ErrorBody,
                    "description": "Where policies are kept does not answer.",
                },
            },
        },
        method="PUT",
        scope="admin",
    ).add_to(app, context)


async def replace_policy(context: AppContext, record: RequestRecord, body: PolicyUpdate) -> Reply:
    """Replace the policy in every replica, from the next request on.

    Applied whole or not at all. A target that cannot be had is refused. The answer lists the
    replicas that apply the policy, and those that have not confirmed in time.
    """
    record.asked = body
    change = asyncio.ensure_future(_replace(context, record, body))
    try:
        return await asyncio.shield(change)
    except asyncio.CancelledError:
        # To its end, also if the client leaves: every change is logged, and goes to all replicas.
        change.add_done_callback(partial(_note_error, record))
        await asyncio.wait([change])
        raise


def _note_error(record: RequestRecord, change: asyncio.Future[Reply]) -> None:
    """Note why a change was not made whose client has left."""
    if not change.cancelled() and (error := change.exception()):
        expected(error, record)


async def _replace(context: AppContext, record: RequestRecord, body: PolicyUpdate) -> Reply:
    classifier = context.catalog.find(record.params["model"])
    record.model = classifier.name
    condition = read_precondition(record.headers, body)
    change_policy = partial(condition.replace, classifier.policy, body)
    previous, new = await context.policy_threads.change(change_policy)
    note_change(record, previous, new)
    refreshed = await context.replicas.refresh_policy(classifier.name)
    refused = [_acknowledged(ack) for ack in refreshed.acks if ack.version < new.version]
    change = PolicyChange(
        model=classifier.name,
        **PolicyChange.fields_of(new),
        policy=new.policy,
        resolved=_resolved(AppliedPolicy(new.policy, classifier.ladder)),
        config_problem=context.catalog.config_problem,
        dropped_profiles=sorted(previous.policy.profiles.keys() - new.policy.profiles.keys()),
        dropped_limits=sorted(_limits(previous) - _limits(new)),
        replicas=[_acknowledged(ack) for ack in refreshed.acks if ack.version >= new.version],
        refused=refused,
        unconfirmed=refreshed.unconfirmed + len(refused),
        missing=list(refreshed.missing),
    )
    tag = {"ETag": tag_of(new.version)}
    return Reply(change.model_dump_json(exclude_none=True).encode(), tag)


def _limits(entry: VersionedPolicy) -> set[str]:
    """Return the names of the limits that a policy sets."""
    return set(entry.policy.limits.model_dump(exclude_none=True, exclude_defaults=True))


def _acknowledged(ack: Ack) -> ReplicaAck:
    return ReplicaAck(replica=ack.replica, version=ack.version, problem=ack.problem or None)


def _resolved(applied: AppliedPolicy) -> dict[str, ResolvedExit]:
    return {name: ResolvedExit.of(chosen) for name, chosen in applied.named.items()}
