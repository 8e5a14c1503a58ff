"""The JSON of dry runs of policies."""

from typing import Any, ClassVar, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from serve.api.schemas.base import SparseModel
from serve.api.schemas.policy import (
    MAX_VERSION,
    ChangeRequest,
    ResolvedExit,
    made_of,
)
from serve.dry_run.totals import Totals, share
from serve.policy.document import Policy

Interval = tuple[float, float]

# Fewer say little, so that those of all names are taken.
FEW_TEXTS = 100


class DryRunRequest(ChangeRequest):
    """A change of a policy that is only tried."""

    needs_version: ClassVar[bool] = False
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"patch": {"default": {"target": {"max_disagreement": 0.03}}}}]
        }
    )

    policy: Any = Field(default=None, description="A whole policy, as for a PUT.")
    patch: Any = Field(
        default=None, description="JSON merge patch (RFC 7396) on the policy, as for a PATCH."
    )
    version: int | None = Field(
        default=None,
        ge=1,
        le=MAX_VERSION,
        description="The version that the change was made from; 409 if another one is current. "
        "Left out, or null: it does not matter.",
    )

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        if len(self.model_fields_set & {"policy", "patch"}) != 1:
            raise ValueError("send a policy, or else a patch of the live one")
        return self

    def made_of(self, live: Policy) -> Policy:
        """Return the policy that the change makes of another one.

        Raises:
            InvalidRequest: it makes none.
        """
        given = {name: getattr(self, name) for name in self.model_fields_set & {"policy", "patch"}}
        return made_of(live, given)


class FlagFigures(SparseModel):
    """What a profile's flag would do. Intervals are as those of disagreement."""

    flagged: float = Field(description="Share of the texts that are flagged.")
    deferred: float = Field(description="Share of the texts that are deferred.")
    missed: float | None = Field(
        default=None, description="Of the texts that full depth flags, the share that is not."
    )
    missed_interval: Interval
    false_alarms: float | None = Field(
        default=None, description="Of the texts that full depth does not flag, the share that is."
    )
    false_alarms_interval: Interval

    @classmethod
    def of(cls, totals: Totals) -> Self:
        """Return the shares of texts, of which there must be some."""
        missed, missed_interval = share(totals.missed, totals.due)
        alarms, alarms_interval = share(totals.false_alarms, totals.texts - totals.due)
        return cls(
            flagged=totals.flagged / totals.texts,
            deferred=totals.deferred / totals.texts,
            missed=missed,
            missed_interval=missed_interval,
            false_alarms=alarms,
            false_alarms_interval=alarms_interval,
        )


class Figures(SparseModel):
    """What would become of some texts."""

    texts: int
    of: Literal["profile", "all"] | None = Field(
        default=None,
        description="Only of audits: whether they are those of the profile, or those of all "
        f"texts, where the profile has fewer than {FEW_TEXTS}.",
    )
    too_few: bool | None = Field(
        default=None, description=f"Only if it is so: there are fewer than {FEW_TEXTS} audits."
    )
    layers: float | None = Field(default=None, description="Mean number of layers per window.")
    layers_interval: Interval | None = Field(
        default=None, description="The mean, give or take 1.96 standard errors."
    )
    ms: float | None = Field(
        default=None,
        description="Mean milliseconds per window, alone in the engine of this machine.",
    )
    disagreement: float | None = Field(
        default=None,
        description="Share answered otherwise than at full depth. Not of a regression without a "
        "calibration, which says from where on values differ.",
    )
    interval: Interval | None = Field(
        default=None,
        description="In which the share among all such texts lies with a probability of 95 %, "
        "for this number of texts (Clopper and Pearson).",
    )
    flag: FlagFigures | None = Field(default=None, description="Only of a profile with a flag.")
    problem: str | None = Field(default=None, description="Only if there is nothing else: why.")

    @classmethod
    def of_totals(cls, found: Totals | str | None, flagging: bool, **more: Any) -> Self | None:
        """Return the figures of sums; None where there are none."""
        if found is None:
            return None
        if isinstance(found, str):
            return cls(texts=0, problem=found)
        if not found.texts:
            return cls(texts=0, **more)
        known = found.differ >= 0
        disagreement, interval = share(max(0, found.differ), found.texts)
        return cls(
            texts=found.texts,
            layers=found.layers / found.texts,
            layers_interval=found.layers_interval,
            ms=found.ms / found.texts,
            disagreement=disagreement if known else None,
            interval=interval if known else None,
            flag=FlagFigures.of(found) if flagging else None,
            **more,
        )


class DryRunSide(SparseModel):
    """The default or a profile, as it is or as it would be."""

    resolved: ResolvedExit
    expected: Figures | None = Field(
        default=None, description="Tried on recorded texts; see `recording_of`."
    )
    live: Figures | None = Field(default=None, description="Tried on audits of live traffic.")


class DryRunProfile(SparseModel):
    """A profile, or the default, before and after the change."""

    before: DryRunSide | None = Field(default=None, description="Not of a profile that is new.")
    after: DryRunSide | None = Field(
        default=None,
        description="Not of a profile that is dropped, nor if the model cannot follow the policy.",
    )


class AuditsOf(SparseModel):
    """Whose audits the figures are from."""

    replicas: int = Field(description="Replicas that have tried the change on theirs.")
    missing: int = Field(description="Replicas that have not done so in time.")


class DryRunReport(SparseModel):
    """What a change of a policy would do. Nothing has changed."""

    model: str
    version: int = Field(description="The live policy's, which `before` is about.")
    problem: str | None = Field(
        default=None, description="Only if a PUT would be refused: what it would say."
    )
    changes: dict[str, tuple[Any, Any]] = Field(
        description="Old and new value of each field that would change; null for one that is not "
        "there."
    )
    profiles: dict[str, DryRunProfile] = Field(description="By name, `default` among them.")
    audits: int = Field(description="Audits of live traffic that there are.")
    audits_of: AuditsOf
    recording: int = Field(description="Recorded texts that there are.")
    recording_of: Literal["certifying", "training"] | None = Field(
        default=None,
        description="`certifying`: the texts that certify this variant, so that a rung has the "
        "figures of its certificate. `training`: those that the model was measured on after its "
        "training, in the precision that it was trained in; run `offramp calibrate` for the "
        "other. Left out: the bundle has no recording.",
    )
