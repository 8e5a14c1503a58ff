"""What audits have found, as numbers that add up over replicas and restarts."""

from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from serve.audits.tally import Tally
from serve.policy.ladder import Loss
from serve.policy.rollout import ArmOf

# What a request's own rule or target is counted as: no profile can have this name.
REQUEST: Final = "(request)"
# Under overload, what a faster rung has answered than the one that was asked for.
DEGRADED: Final = "(degraded)"
# Of a profile there is one key for each promise that it has had, and one without a promise.
MAX_KEYS = 256
MAX_BYTES = 64 * 1024


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Bound(_Frozen):
    """What a certificate says of one loss: at most `epsilon`, but with probability `delta`."""

    loss: Loss
    epsilon: float
    delta: float


class Promise(_Frozen):
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


class Key(NamedTuple):
    """Which answers are counted together.

    Attributes:
        profile: of the policy; of requests without `exit` the one that the default names, or
            `default`; `REQUEST` where the request has chosen a rule or a target itself, `DEGRADED`
            where a faster rung has answered for either.
        promise: None where nothing is promised, such as of texts in several windows.
        rollout: id of the rollout of which `profile` names an arm; empty of all else.
    """

    profile: str
    promise: Promise | None = None
    rollout: str = ""

    @classmethod
    def of_arm(cls, arm: ArmOf) -> Self:
        """Return the key of all that one arm of a rollout has answered."""
        return cls(arm.name, None, arm.rollout)


class _Entry(_Frozen):
    profile: str
    promise: Promise | None
    tally: Tally
    rollout: str = Field(default="", exclude_if=lambda value: not value)


_ENTRIES = TypeAdapter(list[_Entry])


class Counts:
    """Tallies by key, the one that was changed last at the end. One thread at a time."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._tallies: dict[Key, Tally] = {}

    def __iter__(self) -> Iterator[tuple[Key, Tally]]:
        return iter(self._tallies.items())

    def __len__(self) -> int:
        return len(self._tallies)

    def __getitem__(self, key: Key) -> Tally:
        return self._tallies[key]

    def add(self, key: Key, tally: Tally) -> None:
        """Count more of a key. Of too many keys, the one is dropped that was changed first."""
        mine = self._tallies.pop(key, None)
        self._tallies[key] = mine + tally if mine else tally
        if len(self._tallies) > MAX_KEYS:
            del self._tallies[next(iter(self._tallies))]

    def __add__(self, other: "Counts") -> "Counts":
        total = Counts()
        total._tallies = dict(self._tallies)
        for key, tally in other:
            mine = total._tallies.get(key)
            total._tallies[key] = mine + tally if mine else tally
        return total

    def to_json(self) -> bytes:
        """Return the counts as JSON of at most `MAX_BYTES`, without the oldest keys if need be."""
        entries = [_Entry(**key._asdict(), tally=tally) for key, tally in self]
        written = deque(entry.model_dump_json().encode() for entry in entries)
        size = 2 + sum(len(entry) + 1 for entry in written)
        while size > MAX_BYTES:
            size -= len(written.popleft()) + 1
        return b"[" + b",".join(written) + b"]"

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
        counts = cls()
        counts._tallies = {Key(e.profile, e.promise, e.rollout): e.tally for e in entries}
        return counts
