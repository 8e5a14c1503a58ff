"""What the answers of a rollout's arms say of its bounds, however often they are looked at.

All figures are of the whole rollout, not of its step alone, and of the arms in all replicas.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Final, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from serve.audits.counts import AuditCounts, AuditKey, Tally, Traffic, most_ms
from serve.audits.evidence import ANY, RARE, confidence_sequence
from serve.policy.rollout import Arm, Rollout

Verdict = Literal["successful", "failed", "inconclusive"]
# Of a p99: at most so many may be slower.
SLOW_SHARE: Final = 0.01
_ARMS: Final[tuple[Arm, ...]] = ("live", "candidate")


class Figure(NamedTuple):
    """A share or a mean, and bounds of the true one; None of nothing."""

    value: float | None
    low: float
    high: float


class ArmQuality(BaseModel):
    """What one arm has answered."""

    model_config = ConfigDict(frozen=True)

    requests: int = Field(
        description="Requests that were answered, that failed, or that the arm's policy refused."
    )
    errors: int = Field(description="Of them, those that were not answered.")
    answers: int = Field(description="Texts that were answered, or windows of them.")
    share: float | None = Field(description="This arm's share of the requests of both arms.")
    audits: int
    differ: int
    skipped: int
    timed: int = Field(
        description="Requests that were answered, whose deadline has passed, or whose clients have "
        "left after `p99_ms`."
    )
    over: int = Field(description="Of them, those that took longer than `p99_ms`.")
    p99_ms: float | None = Field(description="Of answered requests, to a tenth of it.")
    exits: dict[int, int] = Field(description="Answers by exit layer.")
    figures: dict[str, Figure] = Field(
        description="`disagreement`, `p99_ms` (share that is slower), `layers` and `errors`."
    )
    verdicts: dict[str, Verdict] = Field(
        description="The verdict on each bound; the live arm has none."
    )


class Judged(NamedTuple):
    """What is said of a rollout.

    Attributes:
        arms: by name.
        verdict: of all bounds together.
    """

    arms: Mapping[Arm, ArmQuality]
    verdict: Verdict

    @property
    def unknown(self) -> bool:
        """Whether nothing at all is known of some bound, such as before the first audit."""
        candidate = self.arms["candidate"]
        return any(candidate.figures[name].value is None for name in candidate.verdicts)

    @property
    def answered(self) -> int:
        """How many texts the candidate has answered."""
        return self.arms["candidate"].answers


def judge(rollout: Rollout, counts: AuditCounts, exits: Sequence[int]) -> Judged:
    """Judge a rollout.

    Each bound has its part of the rollout's delta, so that the chance of any wrong verdict, ever,
    is at most delta.

    Args:
        rollout: what is judged.
        counts: of all replicas.
        exits: layers of the model's exits, ascending.
    """
    known = dict(counts)
    tallies: dict[Arm, Tally] = {
        name: known.get(AuditKey.of_arm(rollout.arm(name)), Tally(since="")) for name in _ARMS
    }
    traffic = {name: tally.traffic or Traffic() for name, tally in tallies.items()}
    total = sum(each.requests for each in traffic.values())
    arms: dict[Arm, ArmQuality] = {}
    for name, tally in tallies.items():
        own = traffic[name]
        figures = _figures(tally, own, exits, rollout.delta / len(rollout.bounds.given))
        bounds = rollout.bounds.given if name == "candidate" else {}
        arms[name] = ArmQuality(
            requests=own.requests, errors=own.errors, answers=sum(own.exits.values()),
            share=own.requests / total if total else None,
            audits=tally.audited, differ=tally.differ, skipped=tally.skipped,
            timed=own.timed, over=own.slow, p99_ms=_p99(own.times),
            exits=dict(sorted(own.exits.items())), figures=figures,
            verdicts={each: _verdict(figures[each], each, bound) for each, bound in bounds.items()},
        )  # fmt: skip
    return Judged(arms, _worst(arms["candidate"].verdicts))


def _figures(
    tally: Tally, traffic: Traffic, exits: Sequence[int], delta: float
) -> dict[str, Figure]:
    return {
        "disagreement": _share(tally.differ, tally.audited, delta),
        "p99_ms": _share(traffic.slow, traffic.timed, delta),
        "layers": _layers(traffic.exits, exits, delta),
        "errors": _share(traffic.errors, traffic.requests, delta),
    }


def _share(part: int, whole: int, delta: float) -> Figure:
    low, high = confidence_sequence(part, whole, delta, RARE)
    return Figure(part / whole if whole else None, low, high)


def _layers(found: Mapping[int, int], exits: Sequence[int], delta: float) -> Figure:
    """Return the mean exit layer, as the mean of values from 0 (first exit) to 1 (last)."""
    # An earlier rollout may be of a bundle that had other exits.
    number, layers = sum(found.values()), {*exits, *found}
    first, span = min(layers), max(layers) - min(layers)
    if not span:
        return Figure(float(first), float(first), float(first))
    above = sum(number * (layer - first) for layer, number in found.items()) / span
    low, high = confidence_sequence(above, number, delta, ANY)
    mean = first + span * above / number if number else None
    return Figure(mean, first + span * low, first + span * high)


def _verdict(found: Figure, name: str, bound: float) -> Verdict:
    most = SLOW_SHARE if name == "p99_ms" else bound
    if found.low > most:
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
