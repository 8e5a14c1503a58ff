"""Where live policies and the counts of their audits are kept, and the store of one process."""

import threading
from collections.abc import Iterable
from typing import Final, Protocol

from serve.policy.entry import VersionedPolicy
from serve.policy.model_set import ModelSet

# Of each model's log; the newest older baseline is kept with them.
KEPT_VERSIONS: Final = 100
# Of each model: replicas, those that have ended included, whose counts are kept.
KEPT_COUNTS: Final = 256


class PolicyStore(Protocol):
    """A log of policies per model, shared by all replicas. Calls may block briefly.

    It has the last `KEPT_VERSIONS` entries, and the newest baseline.
    """

    def newest_version(self, model: str) -> int:
        """Return the highest version in the log, readable or not; 0 for an empty log."""
        ...

    def latest(self, model: str) -> VersionedPolicy | None:
        """Return the entry with the highest version, or None if no entry can be read."""
        ...

    def append(self, model: str, entry: VersionedPolicy) -> bool:
        """Add an entry unless its version is taken; tell whether it was added. Atomic."""
        ...

    def history(self, model: str, limit: int) -> list[VersionedPolicy]:
        """Return so many entries, newest first; those that cannot be read are left out."""
        ...

    def entry(self, model: str, version: int) -> VersionedPolicy | None:
        """Return an entry, or None if it is not kept or cannot be read."""
        ...


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


class ModelSetStore(Protocol):
    """Which models all replicas serve. Calls may block."""

    def model_set(self) -> ModelSet | None:
        """Return the newest set; None if there is none."""
        ...

    def put_model_set(self, wanted: ModelSet) -> bool:
        """Replace the set, unless its version is not below; tell whether it was replaced. Atomic.

        So a set that was made from the newest one takes its place, and from an older one does not.
        """
        ...

    def own(self, model: str, bundle: str) -> None:
        """Keep policies and counts of this bundle (a sha256) under the model's name from now on."""
        ...


class Store(PolicyStore, CountStore, ModelSetStore, Protocol):
    """All that outlives a replica."""


class Versions:
    """A log of entries as JSON, for one model. Not safe for threads.

    Attributes:
        newest: the last entry; None for an empty log.
    """

    def __init__(self) -> None:
        self.newest: VersionedPolicy | None = None
        # Not as objects, which take many times the memory of their JSON.
        self._lines: dict[int, bytes] = {}
        self._baselines: set[int] = set()

    def add(self, entry: VersionedPolicy, line: bytes) -> None:
        """Add an entry whose version is the highest, and drop those that are not kept."""
        self.newest, self._lines[entry.version] = entry, line
        if entry.action == "baseline":
            self._baselines.add(entry.version)
        for version in too_many(list(self._lines), self._baselines):
            del self._lines[version]

    def lines(self) -> list[bytes]:
        """Return the JSON of all entries, oldest first."""
        return list(self._lines.values())

    def history(self, limit: int) -> list[VersionedPolicy]:
        """Return so many entries, newest first."""
        newest = list(reversed(self._lines.values()))[:limit]
        return [VersionedPolicy.model_validate_json(line) for line in newest]

    def entry(self, version: int) -> VersionedPolicy | None:
        """Return an entry; None if it is not kept."""
        line = self._lines.get(version)
        return None if line is None else VersionedPolicy.model_validate_json(line)


class MemoryStore:
    """A `Store` for a single process."""

    def __init__(self) -> None:
        self._logs: dict[str, Versions] = {}
        self._counts: dict[str, dict[str, bytes]] = {}
        self._alarms: set[tuple[str, str]] = set()
        self._set: ModelSet | None = None
        self._changing = threading.Lock()

    def newest_version(self, model: str) -> int:
        newest = self.latest(model)
        return newest.version if newest else 0

    def latest(self, model: str) -> VersionedPolicy | None:
        log = self._logs.get(model)
        return log.newest if log else None

    def append(self, model: str, entry: VersionedPolicy) -> bool:
        with self._changing:
            if entry.version <= self.newest_version(model):
                return False
            self._logs.setdefault(model, Versions()).add(entry, entry.model_dump_json().encode())
            return True

    def history(self, model: str, limit: int) -> list[VersionedPolicy]:
        with self._changing:
            return self._logs[model].history(limit) if model in self._logs else []

    def entry(self, model: str, version: int) -> VersionedPolicy | None:
        with self._changing:
            return self._logs[model].entry(version) if model in self._logs else None

    def put_counts(self, model: str, replica: str, counts: bytes) -> None:
        with self._changing:
            put_newest(self._counts.setdefault(model, {}), replica, counts)

    def counts(self, model: str) -> dict[str, bytes]:
        with self._changing:
            return dict(self._counts.get(model, {}))

    def note_alarm(self, model: str, alarm: str) -> bool:
        with self._changing:
            first = (model, alarm) not in self._alarms
            self._alarms.add((model, alarm))
            return first

    def model_set(self) -> ModelSet | None:
        return self._set

    def put_model_set(self, wanted: ModelSet) -> bool:
        with self._changing:
            if self._set and wanted.version <= self._set.version:
                return False
            self._set = wanted
            return True

    def own(self, model: str, bundle: str) -> None:
        pass  # a policy says which bundle it is based on


def put_newest(kept: dict[str, bytes], replica: str, counts: bytes) -> None:
    """Put the counts of a replica behind all others, and drop the first of too many."""
    kept.pop(replica, None)
    kept[replica] = counts
    for oldest in list(kept)[:-KEPT_COUNTS]:
        del kept[oldest]


def too_many(versions: list[int], baselines: Iterable[int]) -> list[int]:
    """Return which of a log's versions, oldest first, are kept no more."""
    beyond = versions[:-KEPT_VERSIONS]
    baseline = max(set(beyond).intersection(baselines), default=0)
    return [version for version in beyond if version != baseline]
