"""What audits have found of the answers that are counted together."""

from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt

from serve.policy.ladder import Loss

# So many days are also counted by themselves.
MAX_DAYS = 8
_DATE = len("2026-01-31")
_NEVER = "9999-01-01"


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
            **self.seen.plus(other.seen)._asdict(),
        )
