"""Guarded rollouts of a model's policy."""

from functools import partial
from typing import Final

from fastapi import FastAPI, Request

from serve.api.classification import Reply
from serve.api.context import AppContext
from serve.api.endpoint import Endpoint
from serve.api.finished import to_its_end
from serve.api.precondition import Precondition, read_precondition, tag_of
from serve.api.record import RequestRecord, record_of
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

PATH: Final = "/v1/models/{model}/policy/rollout"

_SHOW_ERRORS: Final = {status: said for status, said in LOOK_ERRORS.items() if status != 422}


def add_rollout_routes(app: FastAPI, context: AppContext) -> None:
    """Add the routes that start, show and move rollouts."""

    @app.get(PATH, tags=["rollout"], responses=_SHOW_ERRORS, response_model_exclude_none=True)
    async def show_rollout(model: str, request: Request) -> RolloutReport:
        """Show the rollout that runs, or else the last one: its arms, verdicts and moves.

        The counts of other replicas are some seconds old at most.
        """
        classifier = context.catalog.find(model)
        record_of(request.scope).model = classifier.name
        return await context.policy_threads.change(partial(_report, classifier))

    errors = {status: said for status, said in change_errors().items() if status != 428}
    documented = {"tags": ["rollout"], "response_model": RolloutMoved, "responses": errors}
    for tail, schema, handle in (
        ("", RolloutStart, start_rollout),
        ("/promote", RolloutMove, promote_rollout),
        ("/pause", RolloutMove, pause_rollout),
        ("/resume", RolloutMove, resume_rollout),
        ("/abort", RolloutMove, abort_rollout),
    ):
        endpoint = Endpoint(f"{PATH}{tail}", schema, handle, documented, scope="admin")
        endpoint.add_to(app, context)


async def start_rollout(context: AppContext, record: RequestRecord, body: RolloutStart) -> Reply:
    """Let a share of the requests follow a candidate in every replica, from the next request on.

    Refused as a PUT of the candidate would be. The policy stays as it is for all other requests.
    """
    return await _move(context, record, body, "rollout")


async def promote_rollout(context: AppContext, record: RequestRecord, body: RolloutMove) -> Reply:
    """Go on to the next step now; after the last one the candidate becomes the policy."""
    return await _move(context, record, body, "promote")


async def pause_rollout(context: AppContext, record: RequestRecord, body: RolloutMove) -> Reply:
    """Keep the share as it is. A bound that is broken still ends the rollout."""
    return await _move(context, record, body, "pause")


async def resume_rollout(context: AppContext, record: RequestRecord, body: RolloutMove) -> Reply:
    """Begin the step of a paused rollout anew."""
    return await _move(context, record, body, "resume")


async def abort_rollout(context: AppContext, record: RequestRecord, body: RolloutMove) -> Reply:
    """Go back to the policy for all requests, from the next one on."""
    return await _move(context, record, body, "abort")


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
    context: AppContext, record: RequestRecord, body: ChangeRequest, action: RolloutAction
) -> Reply:
    record.asked = body
    return await to_its_end(record, _moved(context, record, body, action))


async def _moved(
    context: AppContext, record: RequestRecord, body: ChangeRequest, action: RolloutAction
) -> Reply:
    classifier = context.catalog.find(record.params["model"])
    record.model = classifier.name
    condition = read_precondition(record.headers, body)
    change = Change(record.client.name or ANONYMOUS, body.why, action)
    old, new, _ = await context.policy_threads.change(
        partial(_roll, classifier, condition, body, change, action)
    )
    note_change(record, old, new)
    refreshed = await context.replicas.refresh_policy(classifier.name)
    shown = dict(await context.policy_threads.run(_report, classifier))
    shown_move = RolloutMoved(**shown, **followers(refreshed, new.version))
    content = shown_move.model_dump_json(exclude_none=True).encode()
    return Reply(content, {"ETag": tag_of(new.version)})


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
