"""Guarded rollouts of a model's policy."""

from typing import Final

from serve.api.context import AppContext
from serve.api.policy_change import change_policy
from serve.api.precondition import tag_of
from serve.api.request import Request
from serve.api.response import Response, json_response
from serve.api.route import Route
from serve.api.routes.models import named_model
from serve.api.routes.policy import change_errors
from serve.api.routes.policy_history import LOOK_ERRORS
from serve.api.schemas.policy import Followers, PolicyEdit
from serve.api.schemas.rollout import (
    NoRollout,
    RolloutMove,
    RolloutMoved,
    RolloutReport,
    RolloutStart,
)
from serve.policy.entry import RolloutAction


async def show_rollout(context: AppContext, request: Request) -> Response:
    """Show the rollout that runs, or else the last one: its arms, verdicts and moves.

    The counts of other replicas are some seconds old at most.
    """
    classifier = named_model(context, request)
    rollout = classifier.policy.rollout
    if rollout is None:
        return json_response(NoRollout(model=classifier.name))
    return json_response(RolloutReport.of(classifier, rollout), exclude_none=True)


async def start_rollout(context: AppContext, request: Request, body: RolloutStart) -> Response:
    """Let a share of the requests follow a candidate in every replica, from the next request on.

    Refused as a PUT of the candidate would be. The policy stays as it is for all other requests.
    """
    return await _move(context, request, body, "rollout")


async def promote_rollout(context: AppContext, request: Request, body: RolloutMove) -> Response:
    """Go on to the next step now; after the last one the candidate becomes the policy."""
    return await _move(context, request, body, "promote")


async def pause_rollout(context: AppContext, request: Request, body: RolloutMove) -> Response:
    """Keep the share as it is. A bound that is broken still ends the rollout."""
    return await _move(context, request, body, "pause")


async def resume_rollout(context: AppContext, request: Request, body: RolloutMove) -> Response:
    """Begin the step of a paused rollout anew."""
    return await _move(context, request, body, "resume")


async def abort_rollout(context: AppContext, request: Request, body: RolloutMove) -> Response:
    """Go back to the policy for all requests, from the next one on."""
    return await _move(context, request, body, "abort")


_PATH: Final = "/v1/models/{model}/policy/rollout"
_SHOW: Final = {
    "tags": ["rollout"],
    "response_model": RolloutReport | NoRollout,
    "responses": {status: said for status, said in LOOK_ERRORS.items() if status != 422},
    "response_model_exclude_none": True,
}
_MOVE: Final = {
    "tags": ["rollout"],
    "response_model": RolloutMoved,
    "responses": {status: said for status, said in change_errors().items() if status != 428},
}
ROUTES: Final = (
    Route("GET", _PATH, show_rollout, "read", documented=_SHOW),
    Route("POST", _PATH, start_rollout, "admin", RolloutStart, documented=_MOVE),
    Route("POST", f"{_PATH}/promote", promote_rollout, "admin", RolloutMove, documented=_MOVE),
    Route("POST", f"{_PATH}/pause", pause_rollout, "admin", RolloutMove, documented=_MOVE),
    Route("POST", f"{_PATH}/resume", resume_rollout, "admin", RolloutMove, documented=_MOVE),
    Route("POST", f"{_PATH}/abort", abort_rollout, "admin", RolloutMove, documented=_MOVE),
)


async def _move(
    context: AppContext, request: Request, body: PolicyEdit, action: RolloutAction
) -> Response:
    classifier, made, refreshed = await change_policy(context, request, body, action)
    version, rollout = made.new.version, made.new.rollout
    assert rollout is not None
    followers = Followers.followers(refreshed, version)
    shown = RolloutMoved.of(classifier, rollout, **followers)
    return json_response(shown, {"ETag": tag_of(version)}, exclude_none=True)
