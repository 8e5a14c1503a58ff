"""Guarded rollouts of a model's policy."""

from contextlib import suppress
from typing import Any, ClassVar, Final, Literal, Self

from pydantic import Field

from serve.api.context import AppContext
from serve.api.policy_change import change_policy, tag_of
from serve.api.policy_edits import MAX_VERSION, PolicyEdit, Proposal, UnconditionalEdit
from serve.api.replicas import Followers
from serve.api.request import Request
from serve.api.response import Response, json_response
from serve.api.route import Handler, Route
from serve.api.routes.models import named_model
from serve.api.routes.policy import CHANGE_ERRORS, LOOK_ERRORS, may_change
from serve.api.schemas import SparseModel, examples
from serve.classifier.classifier import Classifier
from serve.errors import InvalidRequest
from serve.policy.document import Policy
from serve.policy.entry import Action, RolloutAction, VersionedPolicy, now
from serve.policy.live import NextPolicy
from serve.policy.rollout import Arm, Plan, PublicRollout, Rollout, RolloutState
from serve.rollout.judged import ArmReport, Verdict
from serve.rollout.watch import moved, started, too_early


class RolloutMove(UnconditionalEdit):
    """A move of the rollout that runs."""

    model_config = examples({"why": "checked by hand"})

    def wanted(self, classifier: Classifier, action: Action, entry: VersionedPolicy) -> NextPolicy:
        watch, rollout = classifier.rollout, entry.running
        answered = watch.judge(rollout).answered if rollout else 0
        return moved(entry, action, answered, self.why)


class RolloutPromotion(RolloutMove):
    """A move to the next step of the rollout that was seen at a version."""

    needs_version: ClassVar[bool] = True

    version: int | None = Field(
        default=None,
        ge=1,
        le=MAX_VERSION,
        description="The version at which the rollout was seen; 409 if it has moved since. Without "
        "it the header `If-Match` must name the version: 428.",
    )


class RolloutStart(Plan, Proposal, UnconditionalEdit):
    """A candidate, and how a share of the requests comes to follow it."""

    model_config = examples(
        {
            "patch": {"default": {"rule": "layer", "layer": 2}},
            "steps": [5, 25, 50, 100],
            "hold_s": 600,
            "min_answers": 1000,
            "bounds": {"disagreement": 0.01, "p99_ms": 50},
            "on_inconclusive": "pause",
            "why": "the new certificate",
        }
    )

    def wanted(self, classifier: Classifier, action: Action, entry: VersionedPolicy) -> NextPolicy:
        self._check_bounds(classifier)
        plan = Plan.model_validate({name: getattr(self, name) for name in Plan.model_fields})
        return started(entry, plan, self.made_of(entry.policy))

    def document(self, live: Policy) -> Any:
        with suppress(InvalidRequest):  # the answer says why
            live = self.made_of(live)
        return super().document(live)

    def _check_bounds(self, classifier: Classifier) -> None:
        """Refuse bounds that no answer of the model could break or keep.

        Raises:
            InvalidRequest: there is one.
        """
        layers, exits = self.bounds.layers, classifier.traits.layers
        if layers is not None and not exits[0] < layers < exits[-1]:
            raise InvalidRequest(
                f"bounds.layers: no candidate could ever break or keep {layers:g}, because texts "
                f"leave at layer {exits[0]} at the earliest and {exits[-1]} at the latest; give a "
                "bound between them, or leave it out"
            )
        if self.bounds.disagreement is not None and not classifier.audits.compares:
            raise InvalidRequest(
                "bounds.disagreement: answers of this model cannot be audited, because it has one "
                "exit alone, or no calibration that says when two values differ; leave this bound "
                "out"
            )


class RolloutEntry(SparseModel):
    """A version of the policy that was a move of the rollout."""

    version: int
    at: str
    by: str
    action: Action
    state: RolloutState
    percent: float
    why: str | None = None

    @classmethod
    def of(cls, entry: VersionedPolicy) -> Self:
        """Return what is shown of a version that has a rollout."""
        rollout = entry.rollout
        assert rollout is not None
        return cls(
            **{name: getattr(entry, name) for name in ("version", "at", "by", "action")},
            state=rollout.state,
            percent=rollout.percent,
            why=entry.why or rollout.why,
        )


class NoRollout(SparseModel):
    """There was no rollout, as far as versions are kept."""

    model: str
    state: Literal["none"] = "none"


class RolloutReport(PublicRollout):
    """The rollout that runs, or else the last one that is kept."""

    model: str
    version: int = Field(description="Version of the policy at the rollout's last move.")
    percent: float = Field(
        description="Share of the requests that follow the candidate. At the end 100 where it has "
        "become the policy, else 0."
    )
    ends_at: str | None = Field(
        default=None, description="When the step is judged at the earliest, while it runs."
    )
    arms: dict[Arm, ArmReport]
    verdict: Verdict | Literal["too early"] = Field(
        description="The verdict on all bounds together. `too early`: no bound is broken, and the "
        "step has not held long enough or has too few answers."
    )
    note: str | None = Field(
        default=None, description="What keeps the rollout from going on, and what to do about it."
    )
    history: list[RolloutEntry] = Field(description="The rollout's moves, newest first.")

    @classmethod
    def of(cls, classifier: Classifier, rollout: Rollout, **further: Any) -> Self:
        """Return what is shown of the newest rollout of a model's policy."""
        policy = classifier.policy
        newest = policy.history[-1].entry
        if rollout.active and not newest.running:  # by a replica that could not follow it
            rollout = rollout.become("superseded", f"version {newest.version}")
        entries = [entry for entry, _ in reversed(policy.history)]
        own = [entry for entry in entries if entry.rollout and entry.rollout.id == rollout.id]
        found = classifier.rollout.latest(rollout)
        early = found.verdict != "failed" and too_early(rollout, found, now())
        return cls(
            **{name: getattr(rollout, name) for name in PublicRollout.model_fields},
            model=classifier.name,
            version=own[0].version,
            percent=rollout.percent,
            ends_at=rollout.ends_at if rollout.state == "running" else None,
            arms=found.arms,
            verdict="too early" if early and rollout.active else found.verdict,
            note=found.note(rollout) if rollout.active else None,
            history=[RolloutEntry.of(entry) for entry in own],
            **further,
        )


class RolloutMoved(RolloutReport, Followers):
    """A rollout after a move, and the replicas that follow it already."""


async def show_rollout(context: AppContext, request: Request) -> Response:
    """Show the rollout that runs, or else the last one: its arms, verdicts and moves.

    The counts of other replicas are some seconds old at most.
    """
    classifier = named_model(context, request)
    rollout = classifier.policy.rollout
    if rollout is None:
        return json_response(NoRollout(model=classifier.name))
    if not may_change(request):
        rollout = rollout.model_copy(update={"candidate": rollout.candidate.public})
    return json_response(RolloutReport.of(classifier, rollout), exclude_none=True)


async def start_rollout(context: AppContext, request: Request, body: RolloutStart) -> Response:
    """Let a share of the requests follow a candidate in every replica, from the next request on.

    Refused as a PUT of the candidate would be. The policy stays as it is for all other requests.
    """
    return await _move(context, request, body, "rollout")


async def promote_rollout(
    context: AppContext, request: Request, body: RolloutPromotion
) -> Response:
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


async def _move(
    context: AppContext, request: Request, body: PolicyEdit, action: RolloutAction
) -> Response:
    classifier, made, refreshed = await change_policy(context, request, body, action)
    version, rollout = made.new.version, made.new.rollout
    assert rollout is not None
    followers = Followers.followers(refreshed, version)
    shown = RolloutMoved.of(classifier, rollout, **followers)
    return json_response(shown, {"ETag": tag_of(version)}, exclude_none=True)


def _moving(below: str, handle: Handler, schema: type[PolicyEdit]) -> Route:
    without = () if schema.needs_version else (428,)
    errors = {status: why for status, why in CHANGE_ERRORS.items() if status not in without}
    return Route(
        "POST",
        f"{_PATH}{below}",
        handle,
        "admin",
        schema,
        tag=_TAG,
        shown=RolloutMoved,
        errors=errors,
    )


_PATH: Final = "/v1/models/{model}/policy/rollout"
_TAG: Final = "rollout"
_SHOWN: Final = RolloutReport | NoRollout
_NONE: Final = {404: LOOK_ERRORS[404]}
ROUTES: Final = (
    Route("GET", _PATH, show_rollout, "read", tag=_TAG, shown=_SHOWN, errors=_NONE),
    _moving("", start_rollout, RolloutStart),
    _moving("/promote", promote_rollout, RolloutPromotion),
    _moving("/pause", pause_rollout, RolloutMove),
    _moving("/resume", resume_rollout, RolloutMove),
    _moving("/abort", abort_rollout, RolloutMove),
)
