"""What a change of a policy would do."""

from functools import partial
from typing import Any, ClassVar, Final, Literal, NamedTuple, Self

from pydantic import Field

from serve.api.context import AppContext
from serve.api.policy_change import Precondition, read_precondition
from serve.api.policy_edits import MAX_VERSION, ChangeRequest, Proposal
from serve.api.replicas import Replayed
from serve.api.request import Request
from serve.api.response import Response, json_response
from serve.api.route import Route
from serve.api.routes.models import UNKNOWN_MODEL, named_model
from serve.api.routes.policy import ResolvedExit
from serve.api.schemas import SparseModel, examples
from serve.dry_run.exit_trial import Totals, interval
from serve.dry_run.predicted import (
    Exits,
    Found,
    OnAudits,
    OnRecording,
    Place,
    exits_of,
    on_audits_here,
    on_recording,
)
from serve.errors import InvalidRequest, InvalidRule, PreconditionFailed, VersionConflict
from serve.policy.applied import AppliedPolicy, checked
from serve.policy.difference import changes
from serve.policy.document import Policy
from serve.policy.entry import VersionedPolicy
from serve.policy.served_ladder import ServedLadder

Interval = tuple[float, float]

# Fewer audits of a profile say little, so that those of all texts are taken.
FEW_TEXTS = 100


class DryRunRequest(Proposal, ChangeRequest):
    """A change of a policy that is only tried."""

    needs_version: ClassVar[bool] = False
    model_config = examples({"patch": {"default": {"target": {"max_disagreement": 0.03}}}})

    version: int | None = Field(
        default=None,
        ge=1,
        le=MAX_VERSION,
        description="The version that the change was made from; 409 if another one is current. "
        "Left out, or null: it does not matter.",
    )


class FlagFigures(SparseModel):
    """What a profile's flag would do. Intervals are as those of disagreement."""

    flagged: float = Field(description="Share of the texts that are flagged.")
    deferred: float = Field(description="Share of the texts that are deferred.")
    missed: float | None = Field(
        default=None,
        description="Share of the texts flagged by full depth that the profile does not flag.",
    )
    missed_interval: Interval
    false_alarms: float | None = Field(
        default=None,
        description="Share of the texts not flagged by full depth that the profile flags.",
    )
    false_alarms_interval: Interval

    @classmethod
    def of(cls, totals: Totals) -> Self:
        """Return the shares of texts, of which there must be some."""
        due, others = totals.due, totals.texts - totals.due
        return cls(
            flagged=totals.flagged / totals.texts,
            deferred=totals.deferred / totals.texts,
            missed=totals.missed / due if due else None,
            missed_interval=interval(totals.missed, due),
            false_alarms=totals.false_alarms / others if others else None,
            false_alarms_interval=interval(totals.false_alarms, others),
        )


class DryRunFigures(SparseModel):
    """What a rule would do with a set of texts."""

    texts: int
    of: Literal["profile", "all"] | None = Field(
        default=None,
        description="Whose audits these are: the profile's, or those of all texts where the "
        f"profile has fewer than {FEW_TEXTS}; missing for recorded texts.",
    )
    too_few: bool | None = Field(
        default=None,
        description=f"True if there are fewer than {FEW_TEXTS} audits; missing if not.",
    )
    layers: float | None = Field(default=None, description="Mean number of layers per window.")
    layers_interval: Interval | None = Field(
        default=None, description="The mean, give or take 1.96 standard errors."
    )
    ms: float | None = Field(
        default=None,
        description="Mean milliseconds per window that is alone in the engine of this machine.",
    )
    disagreement: float | None = Field(
        default=None,
        description="Share of texts with another answer than at full depth. Missing for a "
        "regression without a calibration, which would say how far apart values differ.",
    )
    interval: Interval | None = Field(
        default=None,
        description="Interval that holds the share among all such texts with a probability of "
        "95 %, for this number of texts (Clopper and Pearson).",
    )
    flag: FlagFigures | None = Field(
        default=None, description="Figures of the profile's flag; missing without one."
    )
    problem: str | None = Field(
        default=None, description="Why there are no figures; missing if there are."
    )

    @classmethod
    def of_found(cls, found: Found, flagging: bool, **more: Any) -> Self:
        """Return the figures of sums, or why there are none."""
        if isinstance(found, str):
            return cls(texts=0, problem=found)
        if not found.texts:
            return cls(texts=0, **more)
        known = found.differ >= 0
        return cls(
            texts=found.texts,
            layers=found.layers / found.texts,
            layers_interval=found.layers_interval,
            ms=found.ms / found.texts,
            disagreement=found.differ / found.texts if known else None,
            interval=interval(found.differ, found.texts) if known else None,
            flag=FlagFigures.of(found) if flagging else None,
            **more,
        )

    @classmethod
    def of_audits(cls, audits: OnAudits, place: Place, flagging: bool) -> Self | None:
        """Return the figures of the profile's own audits if they are enough, else of all."""
        if place not in audits.found:
            return None
        own, every = audits.found[place]
        if isinstance(own, Totals) and own.texts >= FEW_TEXTS:
            return cls.of_found(own, flagging, of="profile")
        return cls.of_found(every, flagging, of="all", too_few=audits.texts < FEW_TEXTS or None)


class DryRunSide(SparseModel):
    """The default or a profile, as it is or as it would be."""

    resolved: ResolvedExit
    expected: DryRunFigures | None = Field(
        default=None, description="Tried on recorded texts; see `recording_of`."
    )
    live: DryRunFigures | None = Field(default=None, description="Tried on audits of live traffic.")


class DryRunProfile(SparseModel):
    """A profile, or the default, before and after the change."""

    before: DryRunSide | None = Field(default=None, description="Missing for a new profile.")
    after: DryRunSide | None = Field(
        default=None,
        description="Missing for a dropped profile, and if the model cannot follow the policy.",
    )


class AuditsOf(SparseModel):
    """The replicas whose audits the figures are from."""

    replicas: int = Field(
        description="Number of replicas that have tried the change on their audits."
    )
    missing: int = Field(description="Number of replicas that did not answer in time.")


class Proposed(NamedTuple):
    """What a change would make of the policy.

    Attributes:
        policy: None if there is none that could be read.
        applied: None if the model cannot follow it.
        problem: why a PUT would be refused.
    """

    policy: Policy | None = None
    applied: AppliedPolicy | None = None
    problem: str | None = None


class DryRunReport(SparseModel):
    """What a change of a policy would do. Nothing has changed."""

    model: str
    version: int = Field(description="The live policy's, which `before` is about.")
    problem: str | None = Field(
        default=None,
        description="The message with which a PUT would be refused; missing if it would not.",
    )
    changes: dict[str, tuple[Any, Any]] = Field(
        description="Old and new value of each field that would change; null for one that is not "
        "there."
    )
    profiles: dict[str, DryRunProfile] = Field(
        description="The profiles by name, `default` among them."
    )
    audits: int = Field(description="Number of audits of live traffic.")
    audits_of: AuditsOf
    recording: int = Field(description="Number of recorded texts.")
    recording_of: Literal["certifying", "training"] | None = Field(
        default=None,
        description="`certifying`: the texts that certify this variant, so that a rung has the "
        "figures of its certificate. `training`: those that the model was measured on after its "
        "training, in the precision that it was trained in; run `offramp calibrate` for the "
        "other. Left out: the bundle has no recording.",
    )

    @classmethod
    def of(
        cls,
        model: str,
        entry: VersionedPolicy,
        proposed: Proposed,
        exits: Exits,
        recorded: OnRecording,
        replayed: Replayed,
    ) -> Self:
        """Return the report.

        Args:
            model: its name.
            entry: the live policy.
            proposed: the other one.
            exits: of both.
            recorded: what they do to recorded texts.
            replayed: what they do to audited texts, from each replica.
        """
        audits = OnAudits.sum(replayed.answers)
        profiles: dict[str, DryRunProfile] = {}
        for place, chosen in exits.items():
            flagging, found = chosen.settings.flag is not None, recorded.found.get(place)
            side = DryRunSide(
                resolved=ResolvedExit.of(chosen),
                expected=None if found is None else DryRunFigures.of_found(found, flagging),
                live=DryRunFigures.of_audits(audits, place, flagging),
            )
            known = profiles.get(place.name, DryRunProfile())
            profiles[place.name] = known.model_copy(update={place.when: side})
        return cls(
            model=model,
            version=entry.version,
            problem=proposed.problem,
            changes=changes(entry.policy, proposed.policy) if proposed.policy else {},
            profiles=profiles,
            audits=audits.texts,
            audits_of=AuditsOf(replicas=len(replayed.answers), missing=replayed.missing),
            recording=recorded.texts,
            recording_of=recorded.source,
        )


async def dry_run(context: AppContext, request: Request, body: DryRunRequest) -> Response:
    """Say what a change of the policy would do, and change nothing.

    Its profiles and those of the live policy are tried on what every exit has said of recorded
    texts, and of the live texts that were audited.
    """
    classifier = named_model(context, request)
    entry, applied, *_ = classifier.policy.live
    _check_version(read_precondition(request.headers, body), entry.version)
    with context.dry_runs.only_one():
        run = context.dry_runs.run
        proposed = await run(_propose, body, entry.policy, classifier.ladder)
        exits = exits_of(applied, proposed.applied)
        recorded = await run(on_recording, classifier, exits)
        policy = proposed.policy.model_dump_json() if proposed.applied and proposed.policy else None
        here = partial(run, on_audits_here, classifier, policy)
        replayed = await context.replicas.try_on_audits(classifier.name, policy, here)
        told = classifier.name, entry, proposed, exits, recorded, replayed
        report = await run(DryRunReport.of, *told)
    return json_response(report, exclude_none=True)


def _propose(body: DryRunRequest, live: Policy, ladder: ServedLadder) -> Proposed:
    try:
        policy = body.made_of(live)
    except InvalidRequest as error:
        return Proposed(problem=str(error))
    try:
        return Proposed(policy, checked(policy, ladder))
    except InvalidRule as error:
        problem = str(error)
    try:
        return Proposed(policy, AppliedPolicy(policy, ladder), problem)
    except InvalidRule:
        return Proposed(policy, None, problem)


def _check_version(condition: Precondition, current: int) -> None:
    if condition.versions is not None and current not in condition.versions:
        refused = PreconditionFailed if condition.by_header else VersionConflict
        raise refused(
            f"the policy is at version {current}, and this change was made from another one; read "
            "it again and repeat the change"
        )


_PATH: Final = "/v1/models/{model}/policy/dry-run"
_ERRORS: Final = {
    **UNKNOWN_MODEL,
    409: "Another version is current.",
    412: "No version of If-Match is current.",
    422: "Neither a policy nor a patch came, or both.",
    429: "Another dry run is under way.",
}
ROUTES: Final = (
    Route(
        "POST",
        _PATH,
        dry_run,
        "admin",
        DryRunRequest,
        tag="policy",
        shown=DryRunReport,
        errors=_ERRORS,
    ),
)
