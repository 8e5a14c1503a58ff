"""The JSON of rollouts."""

from typing import Any, ClassVar, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from serve.api.schemas.base import SparseModel
from serve.api.schemas.policy import MAX_VERSION, ChangeRequest, Followers
from serve.api.schemas.policy import made_of as policy_made_of
from serve.errors import InvalidRequest
from serve.policy.document import Policy
from serve.policy.entry import Action, VersionedPolicy
from serve.policy.live import Wanted
from serve.policy.rollout import Arm, Bounds, Next, Plan, Rollout, RolloutState
from serve.rollout.judged import ArmQuality, Judged, Verdict
from serve.rollout.moves import started

_ANY_VERSION = Field(
    default=None,
    ge=1,
    le=MAX_VERSION,
    description="The version that must be current; 409 if another one is. Without it, and without "
    "the header `If-Match`, any may be.",
)


class RolloutMove(ChangeRequest):
    """A move of the rollout that runs."""

    needs_version: ClassVar[bool] = False
    model_config = ConfigDict(json_schema_extra={"examples": [{"why": "checked by hand"}]})

    version: int | None = _ANY_VERSION


class RolloutStart(Plan, ChangeRequest):
    """A candidate, and how a share of the requests comes to follow it."""

    needs_version: ClassVar[bool] = False
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

    version: int | None = _ANY_VERSION
    policy: Any = Field(default=None, description="The candidate, a whole policy as for a PUT.")
    patch: Any = Field(
        default=None,
        description="Or a JSON merge patch (RFC 7396) that makes it of the policy, as for a PATCH.",
    )

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        if len(self.model_fields_set & {"policy", "patch"}) != 1:
            raise ValueError("send a policy, or else a patch of the live one")
        return self

    def started(self, entry: VersionedPolicy) -> Wanted:
        """Return what starts on the live version.

        Raises:
            InvalidRequest: there is no candidate.
            RolloutConflict: a rollout runs.
        """
        plan = Plan.model_validate({name: getattr(self, name) for name in Plan.model_fields})
        return started(entry, plan, self.candidate(entry.policy))

    def candidate(self, live: Policy) -> Policy:
        """Return the candidate.

        Raises:
            InvalidRequest: there is none.
        """
        given = {name: getattr(self, name) for name in self.model_fields_set & {"policy", "patch"}}
        return policy_made_of(live, given)

    def changed(self, live: Policy) -> Policy:
        """Return the candidate; the policy itself where there is none."""
        try:
            return self.candidate(live)
        except InvalidRequest:
            return live


class ShownInterval(SparseModel):
    """Bounds of a true value that hold at all times at once."""

    low: float
    high: float


class MeanLayers(ShownInterval):
    """Mean exit layer."""

    mean: float | None = None


class Disagreement(ShownInterval):
    """Audited texts whose answer is another one at full depth."""

    audits: int
    differ: int
    skipped: int = Field(description="Drawn texts that were not audited: the server was busy.")
    rate: float | None = None


class Slow(ShownInterval):
    """Requests that took longer than the bound `p99_ms`, or whose deadline has passed.

    Of clients that have left without an answer, those count that have waited longer than the bound.
    """

    over: int
    rate: float | None = None


class ErrorRate(ShownInterval):
    """Requests that failed, or that the arm's policy refused."""

    rate: float | None = None


class ArmReport(SparseModel):
    """What one arm has answered, in all replicas and since the rollout began."""

    answers: int = Field(description="Texts, or windows of them.")
    requests: int
    errors: int
    share: float | None = Field(default=None, description="Of the requests of both arms.")
    layers: MeanLayers
    disagreement: Disagreement
    p99_ms: float | None = Field(
        default=None, description="To a tenth of it; no bound is judged by it."
    )
    slow: Slow | None = Field(default=None, description="Only with the bound `p99_ms`.")
    error_rate: ErrorRate
    exits: dict[int, int] = Field(description="Answers by exit layer.")
    verdicts: dict[str, Verdict] = Field(
        default={}, description="By bound; of the candidate alone."
    )

    @classmethod
    def of(cls, arm: ArmQuality, bounds: Bounds) -> Self:
        """Return what is shown of an arm."""

        def rated(name: str) -> dict[str, Any]:
            value, low, high = arm.figures[name]
            return {"rate": value, "low": low, "high": high}

        mean, low, high = arm.figures["layers"]
        slow = Slow(over=arm.over, **rated("p99_ms")) if bounds.p99_ms is not None else None
        same = {
            name: getattr(arm, name)
            for name in ("answers", "requests", "errors", "share", "p99_ms", "exits", "verdicts")
        }
        audits: dict[str, Any] = {
            "audits": arm.audits,
            "differ": arm.differ,
            "skipped": arm.skipped,
        }
        return cls(
            layers=MeanLayers(mean=mean, low=low, high=high),
            disagreement=Disagreement(**audits, **rated("disagreement")),
            slow=slow,
            error_rate=ErrorRate(**rated("errors")),
            **same,
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


class RolloutReport(SparseModel):
    """The rollout that runs, or else the last one that is kept."""

    model: str
    state: RolloutState | Literal["none"] = Field(
        description="`none` where there was no rollout; then there are no other fields."
    )
    why: str | None = None
    version: int | None = Field(default=None, description="Of the policy, at its last move.")
    candidate: Policy | None = None
    steps: list[float] | None = None
    step: int | None = Field(default=None, description="Index of the step.")
    percent: float | None = Field(
        default=None, description="Of the requests follow the candidate, or its policy at the end."
    )
    hold_s: float | None = None
    min_answers: int | None = None
    since: str | None = Field(default=None, description="When the step began, in UTC.")
    ends_at: str | None = Field(
        default=None, description="When the step is judged at the earliest, while it runs."
    )
    bounds: Bounds | None = None
    on_inconclusive: Next | None = None
    audit_share: float | None = None
    by: Literal["key", "request"] | None = None
    delta: float | None = None
    arms: dict[Arm, ArmReport] | None = None
    verdict: Verdict | Literal["too early"] | None = Field(
        default=None,
        description="Of all bounds together. `too early`: no bound is broken, and the step has not "
        "held long enough or has too few answers.",
    )
    history: list[RolloutEntry] | None = Field(default=None, description="Its moves, newest first.")


class RolloutMoved(RolloutReport, Followers):
    """A rollout after a move, and the replicas that follow it already."""


def rollout_fields(
    entries: list[VersionedPolicy], rollout: Rollout, found: Judged
) -> dict[str, Any]:
    """Return what is shown of a rollout.

    Args:
        entries: its moves, newest first.
        rollout: as the newest has it.
        found: what its arms have answered.
    """
    plan = {name: getattr(rollout, name) for name in Plan.model_fields}
    own = ("state", "why", "candidate", "step", "percent", "since")
    return {
        **plan,
        **{name: getattr(rollout, name) for name in own},
        "steps": list(rollout.steps),
        "version": entries[0].version,
        "arms": {name: ArmReport.of(arm, rollout.bounds) for name, arm in found.arms.items()},
        "history": [_shown(each) for each in entries],
    }


def _shown(entry: VersionedPolicy) -> RolloutEntry:
    assert entry.rollout is not None
    same = {name: getattr(entry, name) for name in ("version", "at", "by", "action")}
    rollout = entry.rollout
    why = entry.why or rollout.why
    return RolloutEntry(state=rollout.state, percent=rollout.percent, why=why, **same)
