"""The live policy: the one that applies now, and how a new one replaces it.

A policy's history is a log of numbered entries in a `PolicyStore`. The first replica that appends
entry n + 1 has replaced version n; the others get a conflict. A request reads one immutable
entry, so a change never mixes rules inside one request.
"""

import hashlib
import logging
import threading
from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

from serve.errors import InvalidRule, RolloutConflict, UnknownVersion, VersionConflict
from serve.logs import TRAIL, fields
from serve.policy.applied import checked
from serve.policy.difference import change_line
from serve.policy.document import Policy
from serve.policy.entry import Change, VersionedPolicy
from serve.policy.followed import Live
from serve.policy.rollout import Rollout
from serve.policy.served_ladder import ServedLadder
from serve.policy.store import KEPT_VERSIONS, MemoryStore, PolicyStore

__all__ = [
    "Change",
    "Live",
    "LivePolicy",
    "MemoryStore",
    "PolicyStore",
    "Replacement",
    "VersionedPolicy",
]

log = logging.getLogger(__name__)
trail = logging.getLogger(TRAIL)

# Of a change that replaces any version; each that fails means that another change was stored.
_MOST_TRIES = 100
_PUT = Change()

# From the current entry to the next one's policy and, of a change that a rollout is about, rollout.
Following: TypeAlias = Callable[[VersionedPolicy], "tuple[Policy, Rollout | None]"]


class Replacement(NamedTuple):
    """A policy that was live, and the one that has taken its place."""

    old: VersionedPolicy
    new: VersionedPolicy


class LivePolicy:
    """One model's policy in one replica.

    Attributes:
        live: the policy that the next request uses.
        unfollowed: why the newest stored policy is not the live one; empty if it is.
    """

    def __init__(
        self, model: str, ladder: ServedLadder, store: PolicyStore, bundle: str = ""
    ) -> None:
        """Start without a baseline; `set_baseline` must follow before any request.

        A model with another `bundle`, the sha256 of its own, starts from its baseline.
        """
        self._model, self._bundle = model, bundle
        self._ladder = ladder
        self._store = store
        self._adopting = threading.Lock()
        self.unfollowed = ""
        nothing = VersionedPolicy(version=0, policy=Policy(), source="bundle", baseline="")
        self.live = Live.of(nothing, self._ladder)

    @property
    def current(self) -> VersionedPolicy:
        """The entry that the next request uses."""
        return self.live.entry

    @property
    def ready(self) -> bool:
        """Whether a baseline has been set."""
        return self.current.version > 0

    @property
    def problem(self) -> str:
        """What keeps the newest stored policy from applying as it is written; empty if nothing."""
        return self.unfollowed or "; ".join(map(str, self.live.applied.unkept.values()))

    def refresh(self) -> VersionedPolicy:
        """Apply the newest stored policy, if the model can follow it."""
        stored = self._stored()
        if stored is not None:
            self._adopt(stored)
        return self.current

    def history(self, limit: int) -> list[VersionedPolicy]:
        """Return so many stored entries, newest first."""
        return self._store.history(self._model, limit)

    def find(self, version: int) -> VersionedPolicy | None:
        """Return a stored entry; None if it is not kept."""
        return self._store.entry(self._model, version)

    def entry(self, version: int) -> VersionedPolicy:
        """Return a stored entry.

        Raises:
            UnknownVersion: it is not kept.
        """
        entry = self.find(version)
        if entry is None:
            kept = [each.version for each in reversed(self.history(KEPT_VERSIONS + 1))]
            raise UnknownVersion(
                f"there is no version {version} of the policy of {self._model}, or not any more; "
                f"kept are {_spans(kept) or 'none'}"
            )
        return entry

    def check_baseline(self, policy: Policy) -> None:
        """Raise what `set_baseline` would raise now, and change nothing."""
        policy.check(self._ladder.traits)
        stored = self._stored()
        if stored is None or stored.baseline != self._hash(policy):
            checked(policy, self._ladder)

    def set_baseline(self, policy: Policy, source: Literal["bundle", "config"]) -> None:
        """Start from this policy, unless the newest stored one builds on it already.

        Replicas that start together race to append the same baseline: one wins, all agree. A
        target that one of them could have is not refused by the others, whose times differ.

        Raises:
            InvalidRule: the model cannot follow it; nothing has changed.
        """
        policy.check(self._ladder.traits)
        baseline = self._hash(policy)
        while True:
            newest = self._store.newest_version(self._model)
            stored = self._stored()
            if stored is not None and stored.baseline == baseline:
                self._adopt(stored)
                return
            checked(policy, self._ladder)
            change = Change(source, None, "baseline")
            entry = VersionedPolicy.of(newest + 1, policy, source, baseline, change)
            entry = entry.ending_rollout_of(self._store.latest(self._model))
            if self._store.append(self._model, entry):
                if entry.version > 1 or source != "bundle":  # no plain start
                    self._note(entry, stored or self.current)
                self._adopt(entry)
                return

    def replace(
        self,
        policy: Policy | Callable[[Policy], Policy],
        based_on: int | None,
        change: Change = _PUT,
    ) -> Replacement:
        """Put a policy in place of the version that it is based on; None for any.

        Args:
            policy: the whole new one, or what makes it of the live one.
            based_on: the version that must be live.
            change: what the log says of it.

        Raises:
            InvalidRule: the model cannot follow it; nothing has changed.
            VersionConflict: another version is current; nothing has changed.
        """

        def made(old: VersionedPolicy) -> tuple[Policy, None]:
            wanted = policy(old.policy) if callable(policy) else policy
            self._check(wanted, change)
            return wanted, None

        return self._change(made, based_on, change)

    def roll(self, following: Following, based_on: int | None, change: Change) -> Replacement:
        """Start, change or end a rollout, as `replace`.

        Args:
            following: makes the next entry's policy and rollout; what it raises changes nothing.
            based_on: the version that must be live.
            change: what the log says of it.

        Raises:
            RolloutConflict: the newest stored policy, which may have a rollout, is not followed.
        """

        def made(old: VersionedPolicy) -> tuple[Policy, Rollout | None]:
            if self.unfollowed:
                raise RolloutConflict(
                    "this replica cannot follow the newest version of the policy, and so moves no "
                    f"rollout: {self.unfollowed}; ask another replica, or PUT a policy that all "
                    "can follow"
                )
            policy, rollout = following(old)
            if rollout and not old.running:
                checked(rollout.candidate, self._ladder)
            return policy, rollout

        return self._change(made, based_on, change)

    def _change(self, following: Following, based_on: int | None, change: Change) -> Replacement:
        for _ in range(_MOST_TRIES if based_on is None else 1):
            # Read before the refresh, so that an entry appended after it makes ours fail.
            newest = self._store.newest_version(self._model)
            old = self.refresh()
            if based_on is not None and based_on != old.version:
                raise VersionConflict(_conflict(based_on, old.version))
            policy, rollout = following(old)
            new = VersionedPolicy.of(newest + 1, policy, change.source, old.baseline, change)
            new = new.after(old)
            if rollout:
                new = new.model_copy(update={"rollout": rollout})
            else:
                new = new.ending_rollout_of(old)
            if self._store.append(self._model, new):
                if change.source != "api":
                    self._note(new, old)
                self._adopt(new)
                return Replacement(old, new)
        if based_on is None:
            raise VersionConflict("other changes of the policy came first each time; try again")
        raise VersionConflict(_conflict(based_on, self.refresh().version))

    def _check(self, policy: Policy, change: Change) -> None:
        """Check a change. The guardrail is not kept from its own by another profile's target."""
        if change.action == "guardrail":
            policy.check(self._ladder.traits)
        else:
            checked(policy, self._ladder)

    def _note(self, new: VersionedPolicy, old: VersionedPolicy) -> None:
        """Write the line of a change that no request has made."""
        trail.info("policy changed", extra=fields(**change_line(self._model, old, new)))

    def _adopt(self, entry: VersionedPolicy) -> None:
        """Apply an entry, unless another thread has applied a newer one already."""
        with self._adopting:
            if entry.version > self.current.version:
                self.live = Live.of(entry, self._ladder)
                for name, problem in self.live.applied.problems.items():
                    log.warning("%s: policy %d: %s: %s", self._model, entry.version, name, problem)

    def _hash(self, policy: Policy) -> str:
        return hashlib.sha256(f"{self._bundle}{policy.model_dump_json()}".encode()).hexdigest()

    def _stored(self) -> VersionedPolicy | None:
        """Return the newest stored policy; None, with a log line, if the model cannot follow it."""
        stored = self._store.latest(self._model)
        if stored is None:
            return None
        try:
            stored.policy.check(self._ladder.traits)
            if stored.running:
                stored.running.candidate.check(self._ladder.traits)
        except InvalidRule as error:
            log.error("%s: stored policy %d is ignored: %s", self._model, stored.version, error)
            self.unfollowed = str(error)
            return None
        self.unfollowed = ""
        return stored


def _conflict(based_on: int, current: int) -> str:
    return (
        f"the policy is at version {current}, this one was made from version {based_on}; "
        "read it again and repeat the change"
    )


def _spans(versions: list[int]) -> str:
    """Return ascending versions as text, such as `3, 7 to 12`."""
    spans: list[list[int]] = []
    for version in versions:
        if spans and version == spans[-1][-1] + 1:
            spans[-1] = [spans[-1][0], version]
        else:
            spans.append([version])
    return ", ".join(" to ".join(map(str, span)) for span in spans)
