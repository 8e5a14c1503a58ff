"""What audits have found, as numbers that add up over replicas and restarts.

Answers are counted together if the same is promised of them.
"""

import logging
import math
from collections.abc import Iterator
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, TypeAdapter, ValidationError

from serve.policy.document import DEFAULT
from serve.policy.ladder import Loss
from serve.policy.live import Live
from serve.policy.resolution import ChosenExit
from serve.policy.rollout import ArmOf
from serve.policy.store import CountStore


class _Stored(BaseModel):
    # A later version may write more fields.
    model_config = ConfigDict(frozen=True, extra="ignore")


class Bound(_Stored):
    """What a certificate says of one loss: at most `epsilon`, but with probability `delta`."""

    loss: Loss
    epsilon: float
    delta: float


class Promise(_Stored):
    """What is promised of a profile's answers.

    Attributes:
        bounds: one per loss that was asked for.
        rule: the certified rule, as JSON.
        since: version of the policy since which the profile says what it says: after a change,
            and a change back, evidence starts anew. 0 of a request's own target.
    """

    bounds: tuple[Bound, ...]
    rule: str
    since: int


def promise_of(live: Live, profile: str, chosen: ChosenExit) -> Promise | None:
    """Return what answers of a profile, or of another name in `AuditKey`, come with."""
    resolution = chosen.resolution
    if resolution is None:
        return None
    found = resolution.certificates
    if found is None:
        found = (resolution.certificate,) if resolution.certificate else ()
    if not found:
        return None
    bounds = tuple(Bound(loss=c.loss, epsilon=c.epsilon, delta=c.delta) for c in found)
    rule = chosen.rule.rule.model_dump_json(exclude_none=True)
    return Promise(bounds=bounds, rule=rule, since=live.entry.since.get(profile, 0))


def promises(live: Live) -> dict[str, Promise | None]:
    """Return the promise of every profile, and of the default where it names none of them."""
    names_one = isinstance(live.entry.policy.default, str)
    return {
        name: promise_of(live, name, chosen)
        for name, chosen in live.applied.named.items()
        if not (names_one and name == DEFAULT)
    }


log = logging.getLogger(__name__)

# Names in the place of a profile's, which no profile can have. REQUEST: the request has chosen a
# rule or a target itself. DEGRADED: under overload a faster rung has answered than was asked for.
REQUEST: Final = "(request)"
DEGRADED: Final = "(degraded)"
# A profile has one key for each promise that it has had, and one without a promise.
MAX_KEYS: Final = 256
# The last days with audits are also counted by themselves.
MAX_DAYS: Final = 8
_DATE: Final = len("2026-01-31")
_NO_DATE: Final = "9999-01-01"
_LEAST_MS: Final = 0.1
_LOG_STEP: Final = math.log(1.1)


class AuditKey(NamedTuple):
    """Which answers are counted together.

    Attributes:
        profile: name of the policy's profile; of requests without `exit` the name that the default
            has, or `default`; or `REQUEST` or `DEGRADED`.
        promise: what the answers come with; None where nothing is promised, such as of texts in
            several windows.
        rollout: id of the rollout of which `profile` names an arm; empty of all else.
    """

    profile: str
    promise: Promise | None = None
    rollout: str = ""

    @classmethod
    def of_arm(cls, arm: ArmOf) -> Self:
        """Return the key of all that one arm of a rollout has answered."""
        return cls(arm.name, None, arm.rollout)


class Seen(NamedTuple):
    """What was found of audited texts.

    Attributes:
        audited: texts that were compared.
        differ: those with another answer than full depth's: another label, set of labels or
            entities, or a value further away than the tolerance.
        score_differ: those that showed a score further than `SCORE_TOLERANCE` from full depth's.
        flagged: those that full depth flags.
        missed: those that full depth flags, and the answer that was sent does not.
        false_alarms: those that the answer flags, and full depth does not.
    """

    audited: NonNegativeInt = 0
    differ: NonNegativeInt = 0
    score_differ: NonNegativeInt = 0
    flagged: NonNegativeInt = 0
    missed: NonNegativeInt = 0
    false_alarms: NonNegativeInt = 0

    def observed(self, loss: Loss) -> tuple[int, int] | None:
        """Return how many texts have lost something, and of how many; None if that is not seen."""
        losses: dict[Loss, tuple[int, int]] = {
            "disagreement": (self.differ, self.audited),
            "score": (self.score_differ, self.audited),
            "missed": (self.missed, self.flagged),
            "false_alarms": (self.false_alarms, self.audited - self.flagged),
        }
        return losses.get(loss)


class _Summed(_Stored):
    def _sums(self, other: Self) -> dict[str, Any]:
        """Return the sum of each field, those that are times left out."""
        fields = set(type(self).model_fields) - {"since"}
        return {name: _sum(getattr(self, name), getattr(other, name)) for name in fields}


class Traffic(_Summed):
    """Requests of one arm of a rollout, audited or not.

    Attributes:
        requests: requests that were answered, failed, or were refused by the arm's policy.
        errors: requests that were not answered.
        timed: requests whose time counts: they were answered, or their client has left or their
            deadline has passed after the rollout's bound. The last two are no part of `requests`.
        slow: timed requests that took longer than the bound.
        uncounted: requests that count in no verdict, and in none of the other fields.
        degraded: texts that overload has moved to a faster rule; no audit looks at them.
        exits: texts by the exit layer where they left.
        times: answered requests by `bucket_of` their milliseconds.
    """

    requests: NonNegativeInt = 0
    errors: NonNegativeInt = 0
    timed: NonNegativeInt = 0
    slow: NonNegativeInt = 0
    uncounted: NonNegativeInt = 0
    degraded: NonNegativeInt = 0
    exits: dict[int, NonNegativeInt] = {}
    times: dict[int, NonNegativeInt] = {}

    def __add__(self, other: "Traffic") -> "Traffic":
        return Traffic(**self._sums(other))


def bucket_of(ms: float) -> int:
    """Return the bucket of a duration; each is a tenth longer than the one before."""
    return math.ceil(math.log(max(ms, _LEAST_MS) / _LEAST_MS) / _LOG_STEP)


def most_ms(bucket: int) -> float:
    """Return the longest duration of a bucket."""
    return float(_LEAST_MS * math.exp(_LOG_STEP * bucket))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


class Tally(_Summed):
    """Counts of one key: those of `Seen`, and more.

    Attributes:
        since: when the first text was counted, UTC, ISO 8601.
        early: audited texts that left before the last exit.
        by_exit: audited texts, and how many of them differ, by the exit layer where they left.
        skipped: drawn texts that were not compared, because the server had other work.
        days: what was seen on each of the last days with audits, by the day's date in UTC.
        traffic: the requests of an arm of a rollout; None of all else.
    """

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
    def of(cls, seen: Seen, layer: int, early: bool) -> Self:
        """Return the counts of one text that was compared."""
        now, by_exit = _now(), {layer: (1, seen.differ)}
        days = {now[:_DATE]: seen}
        return cls(since=now, early=early, by_exit=by_exit, days=days, **seen._asdict())

    @property
    def seen(self) -> Seen:
        """What was seen altogether."""
        return Seen(*(getattr(self, name) for name in Seen._fields))

    def recent(self) -> Iterator[tuple[int, Seen]]:
        """Yield what was seen since the begin of each day in `days`, and which day that is.

        Days are counted from the first audit's, which is 0 and not among them.
        """
        first, total = date.fromisoformat(self.since[:_DATE] or _NO_DATE), Seen()
        for day in sorted(self.days, reverse=True):
            total = _sum(total, self.days[day])
            if (number := (date.fromisoformat(day) - first).days) > 0:
                yield number, total

    def __add__(self, other: "Tally") -> "Tally":
        sums = self._sums(other)
        sums["days"] = {day: sums["days"][day] for day in sorted(sums["days"])[-MAX_DAYS:]}
        return Tally(since=min(self.since, other.since), **sums)


def _sum(one: Any, other: Any) -> Any:
    """Return a sum of numbers, of counts, or of dicts and tuples of them; None is nothing."""
    if one is None or other is None:
        return other if one is None else one
    if isinstance(one, dict):
        return {key: _sum(one.get(key), other.get(key)) for key in {**one, **other}}
    if isinstance(one, tuple):
        sums = [mine + more for mine, more in zip(one, other, strict=True)]
        return Seen(*sums) if isinstance(one, Seen) else tuple(sums)
    return one + other


class _Entry(BaseModel):
    profile: str
    promise: Promise | None
    tally: Tally
    rollout: str = Field(default="", exclude_if=lambda value: not value)


_ENTRIES = TypeAdapter(list[_Entry])


class AuditCounts(dict[AuditKey, Tally]):
    """Tallies by key, the one that was changed last at the end. One thread at a time."""

    def add(self, key: AuditKey, tally: Tally) -> None:
        """Count more of a key. Of too many keys, the one is dropped that was changed first."""
        self[key] = _sum(self.pop(key, None), tally)
        if len(self) > MAX_KEYS:
            del self[next(iter(self))]

    def to_json(self) -> bytes:
        """Return the counts as JSON."""
        entries = [_Entry(**key._asdict(), tally=tally) for key, tally in self.items()]
        return _ENTRIES.dump_json(entries)

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Read what `to_json` has written, also that of a later version.

        Raises:
            ValueError: it is damaged.
        """
        try:
            entries = _ENTRIES.validate_json(data)
        except ValidationError:
            raise ValueError("counts of audits cannot be read") from None
        return cls({AuditKey(e.profile, e.promise, e.rollout): e.tally for e in entries})


def counts_of_all(model: str, store: CountStore) -> AuditCounts:
    """Return what all replicas of a model have counted, those that have ended included.

    The store may block.

    Raises:
        Unavailable: the store does not answer.
    """
    total: dict[AuditKey, Tally] = {}
    for replica, data in store.counts(model).items():
        total = _sum(total, _read(model, replica, data))
    return AuditCounts(total)


# The counts of most replicas have not changed since they were read last.
@lru_cache(512)
def _read(model: str, replica: str, data: bytes) -> AuditCounts:
    try:
        return AuditCounts.from_json(data)
    except ValueError as error:
        log.warning("%s: of replica %s: %s", model, replica, error)
        return AuditCounts()
