"""What the answers of a rollout's arms say of its bounds, however often they are looked at.

All figures are of the whole rollout, not of its step alone, and of the arms in all replicas.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, Final, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from serve.audits.counts import AuditCounts, AuditKey, Tally, Traffic, most_ms
from serve.audits.evidence import ANY, RARE, confidence_sequence
from serve.policy.rollout import Arm, Rollout

Verdict = Literal["successful", "failed", "inconclusive"]
# Share of the requests that may be slower than a bound on the p99.
SLOW_SHARE: Final = 0.01
# Probability that any verdict on a rollout is ever wrong.
DELTA: Final = 0.05
# If requests were dealt one by one, it would be less likely than one in 20,000 that none of so many
# expected ones follows the candidate.
_SURELY_SOME: Final = 10
_ARMS: Final[tuple[Arm, ...]] = ("live", "candidate")


class Interval(BaseModel):
    """Bounds of a true value that hold at all times at once."""

    model_config = ConfigDict(frozen=True)

    low: float
    high: float


class MeanLayers(Interval):
    """Mean exit layer."""

    mean: float | None = None


class Rate(Interval):
    """A share of texts or requests."""

    rate: float | None = None


class Disagreement(Rate):
    """Audited texts whose answer is another one at full depth."""

    audits: int
    differ: int
    skipped: int = Field(description="Drawn texts that were not audited: the server was busy.")
    unseen: int = Field(
        description="Texts that overload has moved to a faster rule. No audit looks at them, so "
        "each may differ: the bound is passed only if it holds even then."
    )

    def of_all(self, answers: int) -> Interval:
        """Return bounds of the rate among all answers, of which any that is unseen may differ."""
        unseen = self.unseen / answers if answers else 0.0
        seen = 1 - unseen
        return Interval(low=seen * self.low, high=min(1.0, seen * self.high + unseen))


class Slow(Rate):
    """Requests that took longer than the bound `p99_ms`.

    One whose client has left or whose deadline has passed counts if it has waited longer than that.
    """

    over: int


class ErrorRate(Rate):
    """Requests that failed, or that the arm's policy refused."""


class ArmReport(BaseModel):
    """What one arm has answered, in all replicas and since the rollout began."""

    model_config = ConfigDict(frozen=True)

    answers: int = Field(description="Texts that were answered, or windows of them.")
    requests: int = Field(
        description="Requests that were answered, that failed, or that the arm's policy refused."
    )
    errors: int = Field(description="Requests that were not answered.")
    uncounted: int = Field(
        description="Further requests, which count in no verdict: they asked by a rule, a target "
        "or a name of their own, their own deadline has cut them short, or their client had had "
        "its share."
    )
    share: float | None = Field(
        default=None, description="This arm's share of the requests of both arms."
    )
    layers: MeanLayers
    disagreement: Disagreement
    p99_ms: float | None = Field(
        default=None,
        description="99th percentile of the times of answered requests, accurate to a tenth of it. "
        "No bound is judged by it.",
    )
    slow: Slow | None = Field(
        default=None,
        description="Requests slower than the bound `p99_ms`; missing without that bound.",
    )
    error_rate: ErrorRate
    exits: dict[int, int] = Field(description="Answers by exit layer.")
    verdicts: dict[str, Verdict] = Field(
        default={}, description="The verdict on each bound; the live arm has none."
    )

    def figure(self, bound: str) -> tuple[float | None, Interval]:
        """Return what was found of a bound: the value, None of nothing, and its interval."""
        if bound == "layers":
            return self.layers.mean, self.layers
        if bound == "disagreement":
            return self.disagreement.rate, self.disagreement.of_all(self.answers)
        rate = self.slow if bound == "p99_ms" else self.error_rate
        assert rate is not None
        return rate.rate, rate


class Judged(NamedTuple):
    """What is said of a rollout.

    Attributes:
        arms: the arms by name.
        verdict: verdict on all bounds together.
    """

    arms: dict[Arm, ArmReport]
    verdict: Verdict

    @property
    def unknown(self) -> bool:
        """Whether nothing at all is known of some bound, such as before the first audit.

        So it is of the answers that overload has degraded, where they leave a bound open.
        """
        candidate = self.arms["candidate"]
        open_ = candidate.verdicts.get("disagreement") == "inconclusive"
        nothing = any(candidate.figure(bound)[0] is None for bound in candidate.verdicts)
        return nothing or (open_ and candidate.disagreement.unseen > 0)

    def note(self, rollout: Rollout) -> str | None:
        """Say why the candidate has no requests that count, if many should."""
        live, candidate = self.arms["live"].requests, self.arms["candidate"]
        if candidate.requests:
            return None
        if candidate.uncounted >= _SURELY_SOME:
            return (
                f"none of the candidate's {candidate.uncounted} requests counts: they ask by a "
                "rule, a target or a name of their own, or their own deadline cuts them short"
            )
        if live * rollout.percent / 100 < _SURELY_SOME:
            return None
        return (
            f"none of {live} requests has followed the candidate at {rollout.percent:g} %: all "
            "come with a few values of X-Offramp-Sticky, which decide; leave that header out, or "
            "send one value for each user or session"
        )

    @property
    def answered(self) -> int:
        """How many texts the candidate has answered."""
        return self.arms["candidate"].answers


def judge(rollout: Rollout, counts: AuditCounts, exits: Sequence[int]) -> Judged:
    """Judge a rollout.

    Each bound has its part of `DELTA`, so that this is the chance of any wrong verdict, ever.

    Args:
        rollout: what is judged.
        counts: what all replicas have counted.
        exits: the layers where texts can leave, ascending.
    """
    known, bounds = dict(counts), rollout.bounds.given
    tallies: dict[Arm, Tally] = {
        name: known.get(AuditKey.of_arm(rollout.arm(name)), Tally(since="")) for name in _ARMS
    }
    total = sum(each.traffic.requests for each in tallies.values() if each.traffic)
    delta = DELTA / len(bounds)
    arms = {
        name: _report(tally, total, "p99_ms" in bounds, exits, delta)
        for name, tally in tallies.items()
    }
    candidate = arms["candidate"]
    # With all requests in the candidate, the live arm tells nothing of the present.
    beside = arms["live"] if rollout.steps[rollout.step] < 100 else None
    verdicts = {name: _verdict(candidate, beside, name, bound) for name, bound in bounds.items()}
    arms["candidate"] = candidate.model_copy(update={"verdicts": verdicts})
    return Judged(arms, _worst(verdicts))


def _report(tally: Tally, total: int, timed: bool, exits: Sequence[int], delta: float) -> ArmReport:
    own = tally.traffic or Traffic()
    audits = {"audits": tally.audited, "differ": tally.differ, "skipped": tally.skipped}
    audits["unseen"] = own.degraded
    return ArmReport(
        answers=sum(own.exits.values()),
        requests=own.requests,
        errors=own.errors,
        uncounted=own.uncounted,
        share=own.requests / total if total else None,
        layers=_layers(own.exits, exits, delta),
        disagreement=Disagreement(**audits, **_rate(tally.differ, tally.audited, delta)),
        p99_ms=_p99(own.times),
        slow=Slow(over=own.slow, **_rate(own.slow, own.timed, delta)) if timed else None,
        error_rate=ErrorRate(**_rate(own.errors, own.requests, delta)),
        exits=dict(sorted(own.exits.items())),
    )


def _rate(part: int, whole: int, delta: float) -> dict[str, Any]:
    low, high = confidence_sequence(part, whole, delta, RARE)
    return {"rate": part / whole if whole else None, "low": low, "high": high}


def _layers(found: Mapping[int, int], exits: Sequence[int], delta: float) -> MeanLayers:
    """Return the mean exit layer, as the mean of values from 0 (first exit) to 1 (last)."""
    # An earlier rollout may be of a bundle that had other exits.
    number, layers = sum(found.values()), {*exits, *found}
    first, span = min(layers), max(layers) - min(layers)
    if not span:
        return MeanLayers(mean=float(first), low=float(first), high=float(first))
    above = sum(number * (layer - first) for layer, number in found.items()) / span
    low, high = confidence_sequence(above, number, delta, ANY)
    mean = first + span * above / number if number else None
    return MeanLayers(mean=mean, low=first + span * low, high=first + span * high)


def _verdict(arm: ArmReport, beside: ArmReport | None, name: str, bound: float) -> Verdict:
    most = SLOW_SHARE if name == "p99_ms" else bound
    _, found = arm.figure(name)
    # What slows down or fails the requests of both arms is not the candidate's doing.
    if beside and name in ("p99_ms", "errors"):
        rate, interval = beside.figure(name)
        of_both = 0.0 if rate is None else interval.high
    else:
        of_both = 0.0
    if found.low > max(most, of_both):
        return "failed"
    return "successful" if found.high <= most else "inconclusive"


def _worst(verdicts: Mapping[str, Verdict]) -> Verdict:
    said = set(verdicts.values())
    if "failed" in said:
        return "failed"
    return "inconclusive" if "inconclusive" in said else "successful"


def _p99(times: Mapping[int, int]) -> float | None:
    buckets, number = sorted(times), sum(times.values())
    reached = zip(buckets, accumulate(times[bucket] for bucket in buckets), strict=True)
    found = next((bucket for bucket, seen in reached if seen >= 0.99 * number), None)
    return None if found is None else round(most_ms(found), 3)
