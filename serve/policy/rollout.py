"""A rollout: a candidate that a growing share of the requests follows before it is the policy.

It is part of an entry of the policy's log. Each step, pause and end of it is a new entry, so it
travels, persists and conflicts as every other change of the policy does.
"""

import hashlib
import secrets
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Annotated, Final, Literal, NamedTuple, Self

from pydantic import AfterValidator, ConfigDict, Field, NonNegativeInt, model_validator

from serve.policy.document import Audit, Policy
from serve.validation import OR_PERCENT, RequestModel

Arm = Literal["live", "candidate"]
RolloutState = Literal["running", "paused", "promoted", "failed", "aborted", "superseded"]
Next = Literal["promote", "pause", "abort"]

_MAX_STEPS: Final = 20
_MAX_HOLD_S: Final = 30 * 86_400.0
_MAX_ANSWERS: Final = 10**9


class ArmOf(NamedTuple):
    """One arm of one rollout.

    Attributes:
        rollout: the rollout's id.
        name: the arm's name.
        slow_ms: requests that take longer are slow; None where the rollout has no such bound.
    """

    rollout: str
    name: Arm
    slow_ms: float | None = None


class Bounds(RequestModel):
    """What the candidate's answers must keep.

    Attributes:
        disagreement: share of its answers that may differ from full depth's.
        p99_ms: at most one request in a hundred may take longer.
        layers: mean exit layer.
        errors: share of its requests that may fail, or that the candidate may refuse.
    """

    disagreement: Annotated[float, Field(gt=0, lt=1), OR_PERCENT] | None = None
    p99_ms: Annotated[float, Field(gt=0, le=3_600_000)] | None = None
    layers: Annotated[float, Field(gt=0, le=10_000)] | None = None
    errors: Annotated[float, Field(gt=0, lt=1), OR_PERCENT] | None = None

    @model_validator(mode="after")
    def _bound_something(self) -> Self:
        if not self.given:
            raise ValueError(
                'at least one bound is needed, such as {"disagreement": 0.02}; there are '
                + ", ".join(type(self).model_fields)
            )
        return self

    @property
    def given(self) -> dict[str, float]:
        """The bounds that there are, by name."""
        return {
            name: bound
            for name in type(self).model_fields
            if (bound := getattr(self, name)) is not None
        }


def _ascending(steps: tuple[float, ...]) -> tuple[float, ...]:
    if any(later <= earlier for earlier, later in pairwise(steps)):
        raise ValueError("each step must be larger than the one before, such as [5, 25, 50, 100]")
    return steps


class Plan(RequestModel):
    """How a rollout goes."""

    steps: Annotated[
        tuple[Annotated[float, Field(gt=0, le=100)], ...],
        Field(
            min_length=1,
            max_length=_MAX_STEPS,
            strict=False,
            description="Percent of the requests that follow the candidate, one step after the "
            "other. After the last one, whatever it is, the candidate becomes the policy.",
        ),
        AfterValidator(_ascending),
    ] = (5.0, 25.0, 50.0, 100.0)
    hold_s: float = Field(
        default=600.0, ge=0, le=_MAX_HOLD_S, description="Least seconds of each step."
    )
    min_answers: int = Field(
        default=1000,
        ge=1,
        le=_MAX_ANSWERS,
        description="Least answers of the candidate in each step.",
    )
    bounds: Bounds = Field(description="What the candidate's answers must keep.")
    on_inconclusive: Next = Field(
        default="pause",
        description="What follows a step after which the answers do not tell yet.",
    )
    audit_share: Annotated[float, Field(gt=0, le=1), OR_PERCENT] = Field(
        default=0.2,
        description="Least share of the texts of both arms that are audited.",
    )


class PublicRollout(Plan):
    """What clients are told of a rollout."""

    candidate: Policy = Field(description="The policy that a share of the requests follows.")
    state: RolloutState = Field(
        default="running", description="Whether the rollout runs, or how it has ended."
    )
    step: NonNegativeInt = Field(default=0, description="Index of the step.")
    since: str = Field(description="When the step began, or was resumed, in UTC.")
    why: str | None = Field(
        default=None, description="The reason of the last pause or end, if there is one."
    )


class Rollout(PublicRollout):
    """A rollout that runs or has ended.

    Attributes:
        id: not told to clients, who could else choose their arm.
        answered: answers of the candidate when the step began.
    """

    # Earlier releases have stored fields that are gone.
    model_config = ConfigDict(extra="ignore")

    id: str
    answered: NonNegativeInt = 0

    @classmethod
    def of(cls, plan: Plan, candidate: Policy, now: str) -> "Rollout":
        """Start with the first step of a plan."""
        fields = {name: getattr(plan, name) for name in Plan.model_fields}
        return cls(id=secrets.token_hex(8), candidate=candidate, since=now, **fields)

    @property
    def active(self) -> bool:
        """Whether requests follow the candidate."""
        return self.state in ("running", "paused")

    @property
    def percent(self) -> float:
        """Share of the requests that follow the candidate, in percent."""
        if self.active:
            return self.steps[self.step]
        return 100.0 if self.state == "promoted" else 0.0

    @property
    def at_last(self) -> bool:
        """Whether the step is the last one."""
        return self.step + 1 == len(self.steps)

    def takes(self, value: str) -> bool:
        """Tell whether requests of this value follow the candidate.

        Those that follow it at one step do so at all later ones.
        """
        hashed = hashlib.sha256(f"{self.id}/{value}".encode()).digest()
        return int.from_bytes(hashed[:8]) / 2.0**64 * 100 < self.percent

    def held_s(self, now: str) -> float:
        """Return the seconds since the step began."""
        begun, ended = map(datetime.fromisoformat, (self.since, now))
        return (ended - begun).total_seconds()

    @property
    def ends_at(self) -> str:
        """When the step has been held, in UTC."""
        ended = datetime.fromisoformat(self.since) + timedelta(seconds=self.hold_s)
        return ended.strftime("%Y-%m-%dT%H:%M:%SZ")

    def arm(self, name: Arm) -> ArmOf:
        """Return one of its arms."""
        return ArmOf(self.id, name, self.bounds.p99_ms)

    def audited(self, audit: Audit) -> Audit:
        """Return which answers of an arm are audited: as many as its policy says, or more."""
        return audit.model_copy(update={"share": max(audit.share, self.audit_share)})

    def at_step(self, step: int, answered: int, now: str) -> "Rollout":
        """Return it as a step begins; the candidate has given so many answers."""
        changed = {"step": step, "since": now, "answered": answered, "state": "running"}
        return self.model_copy(update={**changed, "why": None})

    def become(self, state: RolloutState, why: str | None) -> "Rollout":
        """Return it paused, or ended."""
        return self.model_copy(update={"state": state, "why": why})
