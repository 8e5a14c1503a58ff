"""The live policy of a model."""

import asyncio

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from serve.api.context import AppContext
from serve.api.request_body import BODY_ERRORS, JsonRoute
from serve.api.routes.models import UNKNOWN_MODEL
from serve.api.schemas.error import ErrorBody
from serve.api.schemas.policy import PolicyChange, PolicyReport, PolicyUpdate, ReplicaAck


def policy_routes(context: AppContext) -> APIRouter:
    """Return the routes that show and replace the live policy."""
    router = APIRouter(prefix="/v1/models/{model}/policy", tags=["policy"], route_class=JsonRoute)

    @router.get("", responses=UNKNOWN_MODEL, response_model_exclude_none=True)
    async def show_policy(model: str, request: Request) -> PolicyReport:
        """Show the policy that the next request is answered under."""
        classifier = context.catalog.find(model)
        request.state.model = classifier.name
        live = classifier.policy.current
        return PolicyReport(
            model=classifier.name, version=live.version, source=live.source, policy=live.policy
        )

    @router.put(
        "",
        response_model=PolicyChange,
        responses={
            **BODY_ERRORS,
            **UNKNOWN_MODEL,
            409: {"model": ErrorBody, "description": "Another version is current."},
            422: {"model": ErrorBody, "description": "The model cannot follow this policy."},
        },
    )
    async def replace_policy(model: str, body: PolicyUpdate, request: Request) -> Response:
        """Replace the policy in every replica, from the next request on.

        Applied whole or not at all. The answer lists the replicas that apply it.
        """
        classifier = context.catalog.find(model)
        request.state.model = classifier.name
        # On a thread, because the store may be a network away.
        previous, new = await asyncio.to_thread(
            classifier.policy.replace, body.policy, body.version
        )
        refreshed = await context.replicas.refresh_policy(classifier.name)
        change = PolicyChange(
            model=classifier.name,
            version=new.version,
            source=new.source,
            policy=new.policy,
            dropped_profiles=sorted(previous.policy.profiles.keys() - new.policy.profiles.keys()),
            replicas=[ReplicaAck(replica=a.replica, version=a.version) for a in refreshed.acks],
            unconfirmed=refreshed.unconfirmed,
        )
        return JSONResponse(change.model_dump(mode="json", exclude_none=True))

    return router
