"""Guarded rollouts of a model's policy."""

from functools import partial
from typing import Final

from serve.api.context import AppContext
from serve.api.finished import to_its_end
from serve.api.precondition import Precondition, read_precondition, tag_of
from serve.api.request import Request
from serve.api.response import Response, json_response
from serve.api.route import Route
from serve.api.routes.models import named_model
from serve.api.routes.policy import change_errors, followers
from serve.api.routes.policy_history import LOOK_ERRORS
from serve.api.schemas.policy import ChangeRequest
from serve.api.schemas.rollout import (
    RolloutMove,
    RolloutMoved,
    RolloutReport,
    RolloutStart,
    rollout_fields,
)
from serve.api.trail import note_change
from serve.classifier.classifier import Classifier
from serve.errors import InvalidRequest
from serve.policy.entry import ANONYMOUS, Change, RolloutAction, now
from serve.policy.live import Replacement
from serve.rollout.moves import moved
from serve.rollout.watch import too_early


async def show_rollout(context: AppContext, request: Request) -> Response:
    """Show the rollout that runs, or else the last one: its arms, verdicts and moves.

    The counts of other replicas are some seconds old at most.
    """
    classifier = named_model(context, request)
    report = await context.policy_threads.change(partial(_report, classifier))
    return json_response(report, exclude_none=True)


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
    "response_model": RolloutReport,
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


def _check_bounds(classifier: Classifier, asked: RolloutStart) -> None:
    """Refuse bounds that no answer of the model could break or keep.

    Raises:
        InvalidRequest: there is one.
    """
    layers, exits = asked.bounds.layers, classifier.traits.exits
    if layers is not None and not exits[0] < layers < exits[-1]:
        raise InvalidRequest(
            f"bounds.layers: no candidate could ever break or keep {layers:g}, because texts leave "
            f"at layer {exits[0]} at the earliest and {exits[-1]} at the latest; give a bound "
            "between them, or leave it out"
        )
    if asked.bounds.disagreement is not None and not classifier.audits.compares:
        raise InvalidRequest(
            "bounds.disagreement: answers of this model cannot be audited, because it has one exit "
            "alone, or no calibration that says when two values differ; leave this bound out"
        )


def _answered(classifier: Classifier) -> int:
    """Return how many answers the candidate has given in all replicas."""
    rollout = classifier.policy.refresh().running
    return classifier.rollout.judge(rollout).answered if rollout else 0


async def _move(
    context: AppContext, request: Request, body: ChangeRequest, action: RolloutAction
) -> Response:
    request.asked = body
    return await to_its_end(request, _moved(context, request, body, action))


async def _moved(
    context: AppContext, request: Request, body: ChangeRequest, action: RolloutAction
) -> Response:
    classifier = named_model(context, request)
    condition = read_precondition(request.headers, body)
    change = Change(request.client.name or ANONYMOUS, body.why, action)
    old, new, _ = await context.policy_threads.change(
        partial(_roll, classifier, condition, body, change, action)
    )
    note_change(request, old, new)
    refreshed = await context.replicas.refresh_policy(classifier.name)
    shown = dict(await context.policy_threads.run(_report, classifier))
    shown_move = RolloutMoved(**shown, **followers(refreshed, new.version))
    return json_response(shown_move, {"ETag": tag_of(new.version)}, exclude_none=True)


def _roll(
    classifier: Classifier,
    condition: Precondition,
    body: ChangeRequest,
    change: Change,
    action: RolloutAction,
) -> Replacement:
    """Start or move a rollout. May block."""
    if isinstance(body, RolloutStart):
        _check_bounds(classifier, body)
        return condition.change(classifier.policy, body.started, change)
    move = partial(moved, action=action, answered=_answered(classifier), why=body.why)
    return condition.change(classifier.policy, move, change)


def _report(classifier: Classifier) -> RolloutReport:
    """Return what is shown of the newest rollout; may block."""
    entries = [kept.entry for kept in reversed(classifier.policy.history)]
    rollout = next((entry.rollout for entry in entries if entry.rollout), None)
    if rollout is None:
        return RolloutReport(model=classifier.name, state="none")
    if rollout.active and not entries[0].running:  # by a replica that could not follow it
        rollout = rollout.become("superseded", f"version {entries[0].version}")
    own = [entry for entry in entries if entry.rollout and entry.rollout.id == rollout.id]
    found = classifier.rollout.judge(rollout)
    early = found.verdict != "failed" and too_early(rollout, found, now())
    return RolloutReport(
        model=classifier.name,
        verdict="too early" if early and rollout.active else found.verdict,
        ends_at=rollout.ends_at if rollout.state == "running" else None,
        **rollout_fields(own, rollout, found),
    )
