"""What a dry run answers."""

from typing import NamedTuple

from serve.api.replicas import Replayed
from serve.api.schemas.dry_run import (
    FEW_TEXTS,
    AuditsOf,
    DryRunProfile,
    DryRunReport,
    DryRunSide,
    Figures,
)
from serve.api.schemas.policy import ResolvedExit
from serve.dry_run.predicted import Exits, Expected, Live, Place
from serve.dry_run.totals import Totals
from serve.policy.applied import AppliedPolicy
from serve.policy.difference import changes
from serve.policy.document import Policy
from serve.policy.live import VersionedPolicy


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


def report(
    entry: VersionedPolicy,
    proposed: Proposed,
    exits: Exits,
    on_recording: Expected,
    replayed: Replayed,
    model: str,
) -> bytes:
    """Return the JSON of the answer.

    Args:
        entry: the live policy.
        proposed: the other one.
        exits: of both.
        on_recording: what they do to recorded texts.
        replayed: what they do to audited texts, from each replica.
        model: its name.
    """
    live = Live.sum(replayed.answers)
    sides = {
        place: DryRunSide(
            resolved=ResolvedExit.of(chosen),
            expected=Figures.of_totals(
                on_recording.found.get(place), chosen.settings.flag is not None
            ),
            live=_live(live, place, chosen.settings.flag is not None),
        )
        for place, chosen in exits.items()
    }
    made = DryRunReport(
        model=model,
        version=entry.version,
        problem=proposed.problem,
        changes=changes(entry.policy, proposed.policy) if proposed.policy else {},
        profiles={
            name: DryRunProfile(
                before=sides.get(Place(name, "before")), after=sides.get(Place(name, "after"))
            )
            for name in dict.fromkeys(place.name for place in exits)
        },
        audits=live.texts,
        audits_of=AuditsOf(replicas=len(replayed.answers), missing=replayed.missing),
        recording=on_recording.texts,
        recording_of=on_recording.source,
    )
    return made.model_dump_json(exclude_none=True).encode()


def _live(live: Live, place: Place, flagging: bool) -> Figures | None:
    """Return the figures of the profile's own audits if they are enough, else those of all."""
    own, every = live.own.get(place), live.every.get(place)
    if isinstance(own, Totals) and own.texts >= FEW_TEXTS:
        return Figures.of_totals(own, flagging, of="profile")
    return Figures.of_totals(every, flagging, of="all", too_few=live.texts < FEW_TEXTS or None)
