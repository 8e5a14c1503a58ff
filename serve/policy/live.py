"""The live policy: what applies now, and how a new one takes its place.

A policy's history is a log of numbered entries in a `PolicyStore`. Whoever appends entry n + 1
first has replaced version n; everybody else gets a conflict. Requests read one immutable
reference, so a change never mixes rules inside one request.
"""

import hashlib
import logging
import threading
from typing import Literal, Protocol

from pydantic import BaseModel, ConfigDict, NonNegativeInt

from serve.bundle.manifest import Manifest
from serve.errors import InvalidRule, VersionConflict
from serve.policy.document import Policy

log = logging.getLogger(__name__)


class VersionedPolicy(BaseModel):
    """A policy as it applies under one version.

    Attributes:
        version: counts up from 1 (0 before a baseline is set); every answer names it.
        policy: the document.
        source: `bundle` (the manifest's), `config` (the deployment's), or `api` (a PUT).
        baseline: the last policy that came from bundle or config, by hash: when it changes,
            the new one replaces whatever was put on top of the old.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: NonNegativeInt
    policy: Policy
    source: Literal["bundle", "config", "api"]
    baseline: str


class PolicyStore(Protocol):
    """A log of policies per model, shared by all replicas. Calls may block briefly."""

    def newest_version(self, model: str) -> int:
        """Return the highest version in the log, whether or not it is readable; 0 for none."""
        ...

    def latest(self, model: str) -> VersionedPolicy | None:
        """Return the entry with the highest version, or None if there is none to be read."""
        ...

    def append(self, model: str, entry: VersionedPolicy) -> bool:
        """Add an entry unless its version is taken; tell whether it was added. Atomic."""
        ...


class MemoryStore:
    """A log for a single process."""

    def __init__(self) -> None:
        self._entries: dict[str, VersionedPolicy] = {}

    def newest_version(self, model: str) -> int:
        current = self._entries.get(model)
        return current.version if current else 0

    def latest(self, model: str) -> VersionedPolicy | None:
        return self._entries.get(model)

    def append(self, model: str, entry: VersionedPolicy) -> bool:
        current = self._entries.get(model)
        if current is not None and entry.version <= current.version:
            return False
        self._entries[model] = entry
        return True


class LivePolicy:
    """One model's policy in one replica.

    Attributes:
        current: the immutable entry that the next request uses.
    """

    def __init__(self, model: str, manifest: Manifest, store: PolicyStore) -> None:
        """Start from the manifest's policy; `set_baseline` must follow before any request.

        Args:
            model: the name it is served under.
            manifest: bounds what a policy may ask for.
            store: shared with the other replicas.
        """
        self._model = model
        self._traits = manifest.traits
        self._store = store
        self._adopting = threading.Lock()
        self.current = VersionedPolicy(
            version=0, policy=manifest.policy, source="bundle", baseline=""
        )

    @property
    def ready(self) -> bool:
        """Whether a baseline has been set."""
        return self.current.version > 0

    def check(self, policy: Policy) -> None:
        """Raise `InvalidRule` if the model cannot follow the policy."""
        policy.check(self._traits)

    def refresh(self) -> VersionedPolicy:
        """Take up the newest stored policy, if the model can follow it."""
        stored = self._stored()
        if stored is not None:
            self._adopt(stored)
        return self.current

    def set_baseline(self, policy: Policy, source: Literal["bundle", "config"]) -> None:
        """Start from this policy, unless the newest stored one already builds on it.

        Replicas that start together race to append the same baseline: one wins, all agree.

        Raises:
            InvalidRule: the model cannot follow it; nothing has changed.
        """
        self.check(policy)
        baseline = hashlib.sha256(policy.model_dump_json().encode()).hexdigest()
        while True:
            newest = self._store.newest_version(self._model)
            stored = self._stored()
            if stored is not None and stored.baseline == baseline:
                self._adopt(stored)
                return
            entry = VersionedPolicy(
                version=newest + 1,
                policy=policy,
                source=source,
                baseline=baseline,
            )
            if self._store.append(self._model, entry):
                self._adopt(entry)
                return

    def replace(self, policy: Policy, based_on: int | None) -> VersionedPolicy:
        """Put a new policy in place of the current one.

        Args:
            policy: the whole new document.
            based_on: the version it was made from; None replaces whatever there is.

        Raises:
            InvalidRule: the model cannot follow it; nothing has changed.
            VersionConflict: another version is current; nothing has changed.
        """
        self.check(policy)
        # Before the refresh: whatever is appended after this line makes our append fail.
        newest = self._store.newest_version(self._model)
        current = self.refresh()
        if based_on is not None and based_on != current.version:
            raise VersionConflict(_conflict(based_on, current.version))
        entry = VersionedPolicy(
            version=newest + 1, policy=policy, source="api", baseline=current.baseline
        )
        if not self._store.append(self._model, entry):
            raise VersionConflict(_conflict(current.version, self.refresh().version))
        self._adopt(entry)
        return entry

    def _adopt(self, entry: VersionedPolicy) -> None:
        """Apply an entry, unless another thread has already taken up a newer one."""
        with self._adopting:
            if entry.version > self.current.version:
                self.current = entry

    def _stored(self) -> VersionedPolicy | None:
        """Return the newest stored policy unless the model cannot follow it (any more)."""
        stored = self._store.latest(self._model)
        if stored is None:
            return None
        try:
            self.check(stored.policy)
        except InvalidRule as error:
            log.error("%s: stored policy %d is ignored: %s", self._model, stored.version, error)
            return None
        return stored


def _conflict(based_on: int, current: int) -> str:
    return (
        f"the policy is at version {current}, this one was made from version {based_on}; "
        "read it again and repeat the change"
    )
