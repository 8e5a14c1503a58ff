"""Where policies, sets of models and the counts of audits are kept."""

import logging
from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol

from pydantic import ValidationError

from serve.policy.entry import VersionedPolicy
from serve.policy.model_set import ModelSet

log = logging.getLogger(__name__)

# Versions of each model's policy; the newest older baseline is kept with them.
KEPT_VERSIONS: Final = 100
# Replicas of each model, those that have ended included, whose counts are kept.
KEPT_COUNTS: Final = 256


class Log(NamedTuple):
    """A part of the history of a model's policy.

    Attributes:
        newest: the highest version that is kept, readable or not; 0 for none.
        entries: those that can be read, oldest first.
    """

    newest: int
    entries: list[VersionedPolicy]


class CountStore(Protocol):
    """What the replicas of each model have counted; the sum is the model's. Calls may block."""

    def put_counts(self, model: str, replica: str, counts: bytes) -> None:
        """Replace the counts of a replica, as JSON.

        Of more than `KEPT_COUNTS` replicas those are dropped whose counts have not changed for the
        longest time.
        """
        ...

    def counts(self, model: str) -> dict[str, bytes]:
        """Return all counts by replica."""
        ...

    def note_alarm(self, model: str, alarm: str) -> bool:
        """Note an alarm by its name; tell whether no replica has noted it before. Atomic."""
        ...


class Store(CountStore, Protocol):
    """All that outlives a replica, shared by all replicas. Calls may block.

    Every call raises `Unavailable` where the store does not answer.
    """

    def policies(self, model: str, after: int = 0) -> Log:
        """Return the kept versions of a model's policy that are higher than `after`."""
        ...

    def append(self, model: str, entry: VersionedPolicy) -> bool:
        """Add a version unless it, or a higher one, is there; tell whether it was added. Atomic.

        `KEPT_VERSIONS` stay, and the newest baseline.
        """
        ...

    def model_set(self) -> ModelSet | None:
        """Return the newest set of models; None if there is none."""
        ...

    def put_model_set(self, wanted: ModelSet) -> bool:
        """Replace the set, unless its version is not below; tell whether it was replaced. Atomic.

        So a set that was made from the newest one takes its place, and from an older one does not.
        """
        ...


def too_many(versions: list[int], baselines: Iterable[int]) -> list[int]:
    """Return which of a policy's versions, oldest first, are kept no more."""
    beyond = versions[:-KEPT_VERSIONS]
    baseline = max(set(beyond).intersection(baselines), default=0)
    return [version for version in beyond if version != baseline]


def parsed(model: str, version: int, stored: bytes) -> VersionedPolicy | None:
    """Return a stored version; None, with a log line, if this release cannot read it."""
    try:
        return VersionedPolicy.model_validate_json(stored)
    except ValidationError:
        log.error("%s: the stored policy %d is unreadable and ignored", model, version)
        return None
