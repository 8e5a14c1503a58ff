"""The JSON of rollouts."""

from contextlib import suppress
from typing import Any, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from serve.api.schemas.base import SparseModel
from serve.api.schemas.policy import Followers, UnconditionalEdit
from serve.api.schemas.policy import made_of as policy_made_of
from serve.classifier.classifier import Classifier
from serve.errors import InvalidRequest
from serve.policy.document import Policy
from serve.policy.entry import Action, VersionedPolicy, now
from serve.policy.live import NextPolicy
from serve.policy.rollout import Arm, Plan, PublicRollout, Rollout, RolloutState
from serve.rollout.judged import ArmReport, Verdict
from serve.rollout.moves import moved, started
from serve.rollout.watch import too_early


class RolloutMove(UnconditionalEdit):
    """A move of the rollout that runs."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"why": "checked by hand"}]})

    def wanted(self, classifier: Classifier, action: Action, entry: VersionedPolicy) -> NextPolicy:
        watch, rollout = classifier.rollout, entry.running
        answered = watch.judge(rollout).answered if rollout else 0
        return moved(entry, action, answered, self.why)


class RolloutStart(Plan, UnconditionalEdit):
    """A candidate, and how a share of the requests comes to follow it."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "patch": {"default": {"rule": "layer", "layer": 2}},
                    "steps": [5, 25, 50, 100],
                    "hold_s": 600,
                    "min_answers": 1000,
                    "bounds": {"disagreement": 0.01, "p99_ms": 50},
                    "on_inconclusive": "pause",
                    "why": "the new certificate",
                }
            ]
        }
    )

    policy: Any = Field(default=None, description="The candidate, a whole policy as for a PUT.")
    patch: Any = Field(
        default=None,
        description="The candidate as a JSON merge patch (RFC 7396) of the policy, as for a PATCH; "
        "in place of `policy`.",
    )

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        if len(self.model_fields_set & {"policy", "patch"}) != 1:
            raise ValueError("send a policy, or else a patch of the live one")
        return self

    def wanted(self, classifier: Classifier, action: Action, entry: VersionedPolicy) -> NextPolicy:
        self._check_bounds(classifier)
        plan = Plan.model_validate({name: getattr(self, name) for name in Plan.model_fields})
        return started(entry, plan, self._candidate(entry.policy))

    def document(self, live: Policy) -> Any:
        with suppress(InvalidRequest):  # the answer says why
            live = self._candidate(live)
        return super().document(live)

    def _candidate(self, live: Policy) -> Policy:
        given = {name: getattr(self, name) for name in self.model_fields_set & {"policy", "patch"}}
        return policy_made_of(live, given)

    def _check_bounds(self, classifier: Classifier) -> None:
        """Refuse bounds that no answer of the model could break or keep.

        Raises:
            InvalidRequest: there is one.
        """
        layers, exits = self.bounds.layers, classifier.traits.exits
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
            history=[RolloutEntry.of(entry) for entry in own],
            **further,
        )


class RolloutMoved(RolloutReport, Followers):
    """A rollout after a move, and the replicas that follow it already."""
