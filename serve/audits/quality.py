"""What audits say of every profile: counts, intervals, and the evidence against its promise."""

import json
import math
from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from serve.audits.counts import DEGRADED, REQUEST, AuditCounts, AuditKey, Bound, Tally, promises
from serve.audits.evidence import confidence_sequence, log10_restarted
from serve.policy.ladder import Loss
from serve.policy.live import Live
from serve.policy.served_ladder import ServedLadder

State = Literal["kept", "watching", "broken", "not audited", "no promise"]
Interval = tuple[float, float]

_MAX_REQUESTED = 20
# From the worst on. A profile is what the worst of its promises is.
_ORDER: Final[tuple[State, ...]] = ("broken", "watching", "kept", "not audited")


class _Shown(BaseModel):
    model_config = ConfigDict(frozen=True)


class PromiseQuality(_Shown):
    """One promise of a profile, and the audits that tell of it."""

    loss: Loss
    epsilon: float = Field(description="The share that is lost at most, as certified.")
    texts: int | None = Field(
        description="Audited texts that may lose this. Null where audits cannot tell: `metric` "
        "needs right answers, `reference` another classifier."
    )
    lost: int | None = Field(description="Number of these texts that have lost it.")
    interval: Interval | None = Field(
        description="Bounds of the true share, at all times at once, but for the guard's delta."
    )
    evidence_log10: float | None = Field(
        description="Evidence that more is lost than promised; -log10(delta) and more is an alarm."
    )
    state: State


class ExitQuality(_Shown):
    """The audited texts that left at one layer."""

    audits: int
    differences: int
    share: float
    expected: float | None = Field(description="Share of the certifying texts; null if unknown.")


class ProfileQuality(_Shown):
    """What audits say of the answers of one profile, since it has the rule that it has."""

    state: State
    rule: Any = Field(description="The certified rule; null where nothing is promised.")
    since: str | None = Field(description="When the first of the audits was drawn.")
    audits: int
    early: int = Field(description="Audits of texts that left before the last exit.")
    skipped: int = Field(description="Drawn texts that were not audited: the server was busy.")
    differences: int = Field(description="Audits with another answer than full depth's.")
    disagreement: float | None
    interval: Interval = Field(
        description="Bounds of the true disagreement, like those of a promise."
    )
    promises: list[PromiseQuality]
    exits: dict[int, ExitQuality] = Field(description="Audits by exit layer.")
    drift: float | None = Field(
        description="Share of the texts that leave at another layer than the certifying texts "
        "would; some of it is chance."
    )


class PolicyQuality(NamedTuple):
    """What audits say of one version of a policy.

    Attributes:
        live: the policy.
        profiles: the policy's profiles, and its default where that is none of them.
        requests: targets of requests themselves, and the rules that have answered under overload:
            the twenty with the most audits.
    """

    live: Live
    profiles: dict[AuditKey, ProfileQuality]
    requests: dict[AuditKey, ProfileQuality]


def policy_quality(live: Live, counts: AuditCounts, ladder: ServedLadder) -> PolicyQuality:
    """Return what the counts of all replicas say of a policy; `ladder` is the model's."""
    delta = live.entry.policy.guard.delta
    profiles = {}
    for name, promise in promises(live).items():
        key, resolution = AuditKey(name, promise), live.applied.named[name].resolution
        expected: dict[int, float] = {}
        if resolution and ladder.certified:
            places = zip(ladder.traits.layers, resolution.rung.exit_shares, strict=True)
            for layer, share in places:
                expected[layer] = expected.get(layer, 0.0) + share
        profiles[key] = profile_quality(key, counts.get(key), delta, expected)
    own = [key for key in counts if key.profile in (REQUEST, DEGRADED) and key.promise]
    own.sort(key=lambda key: -counts[key].audited)
    requests = {key: profile_quality(key, counts[key], delta, {}) for key in own[:_MAX_REQUESTED]}
    return PolicyQuality(live, profiles, requests)


def profile_quality(
    key: AuditKey, tally: Tally | None, delta: float, expected: Mapping[int, float]
) -> ProfileQuality:
    """Return what a tally says.

    Args:
        key: the answers that are counted.
        tally: None where nothing has been drawn yet.
        delta: the guard's; evidence of 1/delta is an alarm.
        expected: share of the certifying texts by exit layer; empty if unknown.
    """
    found = tally or Tally(since="")
    promise = key.promise
    promised = (
        [_promise_quality(bound, found, delta) for bound in promise.bounds] if promise else []
    )
    states = {each.state for each in promised}
    exits = _exits(found, expected)
    drift = sum(abs(each.share - (each.expected or 0.0)) for each in exits.values()) / 2
    return ProfileQuality(
        state=next((state for state in _ORDER if state in states), "no promise"),
        rule=json.loads(promise.rule) if promise else None,
        since=found.since or None,
        audits=found.audited,
        early=found.early,
        skipped=found.skipped,
        differences=found.differ,
        disagreement=found.differ / found.audited if found.audited else None,
        interval=confidence_sequence(found.differ, found.audited, delta),
        promises=promised,
        exits=exits,
        drift=drift if expected and found.audited else None,
    )


def _promise_quality(bound: Bound, tally: Tally, delta: float) -> PromiseQuality:
    seen = tally.seen.observed(bound.loss)
    found: dict[str, Any] = dict.fromkeys(("texts", "lost", "interval", "evidence_log10"))
    state: State = "not audited"
    if seen:
        lost, texts = seen
        recent = ((day, part.observed(bound.loss) or (0, 0)) for day, part in tally.recent())
        evidence = log10_restarted(seen, recent, bound.epsilon)
        interval = confidence_sequence(lost, texts, delta)
        found = {"texts": texts, "lost": lost, "interval": interval, "evidence_log10": evidence}
        state = "kept" if interval[1] <= bound.epsilon else "watching"
        if evidence >= -math.log10(delta):
            state = "broken"
    return PromiseQuality(loss=bound.loss, epsilon=bound.epsilon, state=state, **found)


def _exits(tally: Tally, expected: Mapping[int, float]) -> dict[int, ExitQuality]:
    found = {}
    for layer in sorted(tally.by_exit.keys() | expected.keys()):
        audits, differences = tally.by_exit.get(layer, (0, 0))
        found[layer] = ExitQuality(
            audits=audits,
            differences=differences,
            share=audits / tally.audited if tally.audited else 0.0,
            expected=expected.get(layer, 0.0) if expected else None,
        )
    return found
