"""What audits have found of the answers that are counted together."""

import math
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import Final, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt

from serve.policy.ladder import Loss

# So many days are also counted by themselves.
MAX_DAYS = 8
_DATE = len("2026-01-31")
_NEVER = "9999-01-01"
_LEAST_MS: Final = 0.1
_LOG_STEP: Final = math.log(1.1)


class Compared(NamedTuple):
    """What an audit has found of one text.

    Attributes:
        differs: another answer than full depth's: another label, set of labels or entities, or a
            value further away than the tolerance.
        score_differs: a score that was shown is further than `SCORE_TOLERANCE` from full depth's.
        flagged: whether full depth's answer is flagged; False without a flag.
        missed: it is, and the answer that was sent is not.
        false_alarm: the other way round.
    """

    differs: bool
    score_differs: bool = False
    flagged: bool = False
    missed: bool = False
    false_alarm: bool = False


class Seen(NamedTuple):
    """Audited texts and what was found of them; see `Compared`."""

    audited: NonNegativeInt = 0
    differ: NonNegativeInt = 0
    score_differ: NonNegativeInt = 0
    flagged: NonNegativeInt = 0
    missed: NonNegativeInt = 0
    false_alarms: NonNegativeInt = 0

    def plus(self, other: "Seen") -> "Seen":
        """Return the sum."""
        return Seen(*map(int.__add__, self, other))

    def observed(self, loss: Loss) -> tuple[int, int] | None:
        """Return how many texts have lost something, and of how many; None if that is not seen."""
        losses: dict[Loss, tuple[int, int]] = {
            "disagreement": (self.differ, self.audited),
            "score": (self.score_differ, self.audited),
            "missed": (self.missed, self.flagged),
            "false_alarms": (self.false_alarms, self.audited - self.flagged),
        }
        return losses.get(loss)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


class Traffic(BaseModel):
    """Requests of one arm of a rollout, audited or not.

    Attributes:
        requests: that were answered, failed, or were refused by the arm's policy.
        errors: of them, those that were not answered.
        timed: those that were answered, or whose deadline has passed; and those, among no other
            number, whose clients have left after the rollout's bound.
        slow: of them, those that took longer than the bound.
        exits: by exit layer, the texts that left there.
        times: by `bucket_of` the milliseconds, answered requests.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    requests: NonNegativeInt = 0
    errors: NonNegativeInt = 0
    timed: NonNegativeInt = 0
    slow: NonNegativeInt = 0
    exits: dict[int, NonNegativeInt] = {}
    times: dict[int, NonNegativeInt] = {}

    def __add__(self, other: "Traffic") -> "Traffic":
        return Traffic(
            requests=self.requests + other.requests,
            errors=self.errors + other.errors,
            timed=self.timed + other.timed,
            slow=self.slow + other.slow,
            exits=dict(Counter(self.exits) + Counter(other.exits)),
            times=dict(Counter(self.times) + Counter(other.times)),
        )


def bucket_of(ms: float) -> int:
    """Return the bucket of a duration; each is a tenth longer than the one before."""
    return math.ceil(math.log(max(ms, _LEAST_MS) / _LEAST_MS) / _LOG_STEP)


def most_ms(bucket: int) -> float:
    """Return the longest duration of a bucket."""
    return float(_LEAST_MS * math.exp(_LOG_STEP * bucket))


class Tally(BaseModel):
    """Counts of one key.

    Attributes:
        since: when the first text was counted, UTC, ISO 8601.
        audited: texts that were compared.
        early: of them, those that left before the last exit.
        differ: see `Compared`, as all that follow.
        by_exit: by exit layer, texts that left there, and how many of them differ.
        skipped: drawn texts that were not compared, because the server had other work.
        days: what was seen on each of the last days with audits, by the day's date in UTC.
        traffic: of an arm of a rollout; None of all else.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    since: str = Field(default_factory=_now)
    audited: NonNegativeInt = 0
    early: NonNegativeInt = 0
    differ: NonNegativeInt = 0
    score_differ: NonNegativeInt = 0
    flagged: NonNegativeInt = 0
    missed: NonNegativeInt = 0
    false_alarms: NonNegativeInt = 0
    by_exit: dict[int, tuple[NonNegativeInt, NonNegativeInt]] = {}
    skipped: NonNegativeInt = 0
    days: dict[str, Seen] = {}
    traffic: Traffic | None = Field(default=None, exclude_if=lambda value: value is None)

    @classmethod
    def of(cls, compared: Compared, layer: int, early: bool) -> Self:
        """Return the counts of one text that was compared."""
        seen, now = Seen(1, *map(int, compared)), _now()
        return cls(
            since=now,
            early=early,
            by_exit={layer: (1, int(compared.differs))},
            days={now[:_DATE]: seen},
            **seen._asdict(),
        )

    @property
    def seen(self) -> Seen:
        """What was seen altogether."""
        return Seen(*(getattr(self, name) for name in Seen._fields))

    def recent(self) -> Iterator[tuple[int, Seen]]:
        """Yield what was seen since the begin of each day in `days`, and which day that is.

        Days are counted from the first audit's, which is 0 and not among them.
        """
        first, total = date.fromisoformat(self.since[:_DATE] or _NEVER), Seen()
        for day in sorted(self.days, reverse=True):
            total = total.plus(self.days[day])
            if (number := (date.fromisoformat(day) - first).days) > 0:
                yield number, total

    def __add__(self, other: "Tally") -> "Tally":
        by_exit = dict(self.by_exit)
        for layer, (there, differ) in other.by_exit.items():
            mine = by_exit.get(layer, (0, 0))
            by_exit[layer] = (mine[0] + there, mine[1] + differ)
        days = dict(self.days)
        for day, seen in other.days.items():
            days[day] = seen.plus(days.get(day, Seen()))
        return Tally(
            since=min(self.since, other.since),
            early=self.early + other.early,
            skipped=self.skipped + other.skipped,
            by_exit=by_exit,
            days={day: days[day] for day in sorted(days)[-MAX_DAYS:]},
            traffic=_sum(self.traffic, other.traffic),
            **self.seen.plus(other.seen)._asdict(),
        )


def _sum(one: Traffic | None, other: Traffic | None) -> Traffic | None:
    return one + other if one and other else one or other
