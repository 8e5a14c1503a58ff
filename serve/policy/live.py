"""The live policy of a model: what requests follow, and how another one takes its place.

The versions of a policy are numbered in a `Store`. The first replica that appends version n + 1 has
replaced version n; the others get a conflict. A request reads one immutable `Live`, so a change
never mixes rules inside one request. All that was read of the store is kept here, so that the
policy and its history are shown without waiting for it.
"""

import hashlib
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from serve.errors import InvalidRule, RolloutConflict, UnknownVersion, VersionConflict
from serve.logs import TRAIL, fields
from serve.policy.applied import AppliedPolicy, checked
from serve.policy.difference import change_line, changes
from serve.policy.document import Audit, Policy
from serve.policy.entry import Change, VersionedPolicy
from serve.policy.rollout import ArmOf, Rollout
from serve.policy.served_ladder import ServedLadder
from serve.policy.store import Store, too_many

log = logging.getLogger(__name__)
trail = logging.getLogger(TRAIL)

# Tries of a change that replaces any version. Each failure means that another change was stored.
_MOST_TRIES: Final = 100
_PUT: Final = Change()


class Live(NamedTuple):
    """A version of a policy, and what it means for this model on this machine.

    Attributes:
        entry: the version; of a candidate the same, with the candidate as its policy.
        applied: the version's policy, compiled.
        audit: which answers are audited.
        arm: the arm of the rollout that runs; None without one.
        candidate: what a share of the requests follows; None without a rollout.
    """

    entry: VersionedPolicy
    applied: AppliedPolicy
    audit: Audit = Audit()
    arm: ArmOf | None = None
    candidate: "Live | None" = None


class NextPolicy(NamedTuple):
    """What a change makes of a version: a policy, and the rollout that the change is about."""

    policy: Policy
    rollout: Rollout | None = None


# What a change makes of the version that is live.
MakeNext: TypeAlias = Callable[[VersionedPolicy], NextPolicy]


class Replacement(NamedTuple):
    """A policy that was live, the one that has taken its place, and what that means here."""

    old: VersionedPolicy
    new: VersionedPolicy
    applied: AppliedPolicy


class Kept(NamedTuple):
    """A version in the history.

    Attributes:
        entry: the version.
        changes: old and new value of each place that it has changed; None if the version before is
            not kept.
    """

    entry: VersionedPolicy
    changes: dict[str, tuple[Any, Any]] | None


class LivePolicy:
    """One model's policy in one replica.

    Attributes:
        live: the policy that the next request uses.
        history: the versions that are kept, oldest first.
        unfollowed: why the newest stored policy is not the live one; empty if it is.
    """

    def __init__(self, model: str, ladder: ServedLadder, store: Store, bundle: str = "") -> None:
        """Start without a baseline; `set_baseline` must follow before any request.

        A model with another `bundle`, the sha256 of its own, starts from its baseline.
        """
        self._model, self._bundle = model, bundle
        self._ladder, self._store = ladder, store
        self._adopting = threading.Lock()
        self._newest = 0  # the highest version that was read
        self.unfollowed = ""
        self.history: Sequence[Kept] = ()
        nothing = VersionedPolicy(version=0, policy=Policy(), source="bundle", baseline="")
        self.live = Live(nothing, AppliedPolicy(nothing.policy, ladder))

    @property
    def current(self) -> VersionedPolicy:
        """The version that the next request uses."""
        return self.live.entry

    @property
    def ready(self) -> bool:
        """Whether a baseline has been set."""
        return self.current.version > 0

    @property
    def problem(self) -> str:
        """What keeps the newest stored policy from applying as it is written; empty if nothing."""
        return self.unfollowed or "; ".join(map(str, self.live.applied.unkept.values()))

    @property
    def rollout(self) -> Rollout | None:
        """The rollout that runs, or else the last one that is kept."""
        entries = (kept.entry for kept in reversed(self.history))
        return next((entry.rollout for entry in entries if entry.rollout), None)

    def version(self, number: int) -> Kept:
        """Return a version that is kept.

        Raises:
            UnknownVersion: it is not kept.
        """
        history = self.history
        if found := next((kept for kept in history if kept.entry.version == number), None):
            return found
        numbers = [kept.entry.version for kept in history]
        raise UnknownVersion(
            f"there is no version {number} of the policy of {self._model}, or not any more; "
            f"kept are {_spans(numbers) or 'none'}"
        )

    def refresh(self) -> VersionedPolicy:
        """Apply the newest stored policy, if the model can follow it. May block.

        Raises:
            Unavailable: the store does not answer.
        """
        return self._read()[1]

    def check_baseline(self, policy: Policy) -> None:
        """Raise what `set_baseline` would raise now, and change nothing."""
        policy.check(self._ladder.traits)
        self._read()
        if self._base() != self._hash(policy):
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
            newest, old = self._read()
            if self._base() == baseline:
                return
            applied = checked(policy, self._ladder)
            change = Change(source, None, "baseline")
            entry = VersionedPolicy.of(newest + 1, policy, source, baseline, change)
            if self.history:
                entry = entry.ending_rollout_of(self.history[-1].entry)
            if self._store.append(self._model, entry):
                if entry.version > 1 or source != "bundle":  # no plain start
                    self._note(entry, old)
                self._take(entry.version, [entry], self._live(entry, applied))
                return

    def change(
        self,
        new: Policy | MakeNext,
        based_on: int | None,
        change: Change = _PUT,
    ) -> Replacement:
        """Put a policy, or a move of a rollout, in place of the version that it is based on.

        To put or patch what is live already makes no new version, unless that ends a rollout.

        Args:
            new: the whole policy, or what makes it of the live one; an error of that changes
                nothing.
            based_on: the version that must be live; None for any.
            change: what the history says of it.

        Raises:
            InvalidRule: the model cannot follow it; nothing has changed.
            RolloutConflict: the newest stored policy, which may have a rollout, is not followed.
            VersionConflict: another version is current; nothing has changed.
        """
        for _ in range(_MOST_TRIES if based_on is None else 1):
            newest, old = self._read()
            if based_on not in (None, old.version):
                break
            if change.moves_rollout and self.unfollowed:
                raise RolloutConflict(
                    "this replica cannot follow the newest version of the policy, and so moves no "
                    f"rollout: {self.unfollowed}; ask another replica, or PUT a policy that all "
                    "can follow"
                )
            policy, rollout = (new, None) if isinstance(new, Policy) else new(old)
            same = policy == old.policy and change.action in ("put", "patch")
            if same and not (old.running or self.unfollowed):
                return Replacement(old, old, self._applied(old.policy))
            entry = VersionedPolicy.of(newest + 1, policy, change.source, old.baseline, change)
            entry = entry.following(old, rollout)
            live = self._checked(entry, old, rollout)
            if self._store.append(self._model, entry):
                if change.source != "api":
                    self._note(entry, old)
                self._take(entry.version, [entry], live)
                return Replacement(old, entry, live.applied)
        if based_on is None:
            raise VersionConflict("other changes of the policy came first each time; try again")
        raise VersionConflict(
            f"the policy is at version {self.refresh().version}, this one was made from version "
            f"{based_on}; read it again and repeat the change"
        )

    def _checked(
        self, entry: VersionedPolicy, old: VersionedPolicy, rollout: Rollout | None
    ) -> Live:
        """Return what a version would mean here; raise if it must not become live."""
        if rollout and not old.running:
            return self._live(entry, candidate=checked(rollout.candidate, self._ladder))
        if rollout:
            return self._live(entry)
        if entry.action == "guardrail":  # another profile's target does not keep it from its own
            entry.policy.check(self._ladder.traits)
            return self._live(entry)
        return self._live(entry, checked(entry.policy, self._ladder))

    def _live(
        self,
        entry: VersionedPolicy,
        applied: AppliedPolicy | None = None,
        candidate: AppliedPolicy | None = None,
    ) -> Live:
        """Work out a version and the candidate of the rollout that runs in it, if not done yet.

        Raises:
            InvalidRule: the model cannot follow a rule.
        """
        live = Live(entry, applied or self._applied(entry.policy), entry.policy.audit)
        rollout = entry.running
        if rollout is None:
            return live
        other = Live(
            entry.model_copy(update={"policy": rollout.candidate}),
            candidate or self._applied(rollout.candidate),
            rollout.audited(rollout.candidate.audit),
            rollout.arm("candidate"),
        )
        audit = rollout.audited(entry.policy.audit)
        return live._replace(audit=audit, arm=rollout.arm("live"), candidate=other)

    def _applied(self, policy: Policy) -> AppliedPolicy:
        """Return what a policy means here, which is known of the live one and its candidate."""
        for known in (self.live, self.live.candidate):
            if known and known.entry.policy is policy:
                return known.applied
        return AppliedPolicy(policy, self._ladder)

    def _read(self) -> tuple[int, VersionedPolicy]:
        """Read what the store has of later versions; return the highest, and the live one."""
        found = self._store.policies(self._model, self._newest)
        return self._take(*found)

    def _take(
        self, newest: int, entries: Sequence[VersionedPolicy], live: Live | None = None
    ) -> tuple[int, VersionedPolicy]:
        """Keep versions that were stored, and apply the last one if the model can follow it."""
        with self._adopting:
            read = self.history[-1].entry.version if self.history else 0
            later = [entry for entry in entries if entry.version > read]
            if later:
                self.history = _kept(self.history, later)
                self._adopt(later[-1], live)
            self._newest = max(self._newest, newest)
            return self._newest, self.current

    def _adopt(self, entry: VersionedPolicy, live: Live | None) -> None:
        if live is None or live.entry is not entry:
            try:
                entry.policy.check(self._ladder.traits)
                if entry.running:
                    entry.running.candidate.check(self._ladder.traits)
                live = self._live(entry)
            except InvalidRule as error:
                log.error("%s: stored policy %d is ignored: %s", self._model, entry.version, error)
                self.unfollowed = str(error)
                return
        self.unfollowed, self.live = "", live
        for name, problem in live.applied.problems.items():
            log.warning("%s: policy %d: %s: %s", self._model, entry.version, name, problem)

    def _base(self) -> str | None:
        """Return what the newest stored policy builds on; None if the model cannot follow it."""
        return None if self.unfollowed or not self.history else self.history[-1].entry.baseline

    def _note(self, new: VersionedPolicy, old: VersionedPolicy) -> None:
        """Write the line of a change that no request has made."""
        trail.info("policy changed", extra=fields(**change_line(self._model, old, new)))

    def _hash(self, policy: Policy) -> str:
        return hashlib.sha256(f"{self._bundle}{policy.model_dump_json()}".encode()).hexdigest()


def _kept(history: Sequence[Kept], later: Sequence[VersionedPolicy]) -> list[Kept]:
    """Return a history with later versions, without those that are kept no more."""
    known = {kept.entry.version: kept for kept in history}
    entries = {version: kept.entry for version, kept in known.items()}
    entries |= {entry.version: entry for entry in later}
    baselines = [version for version, entry in entries.items() if entry.action == "baseline"]
    for version in too_many(list(entries), baselines):
        del entries[version]
    found = []
    for version, entry in entries.items():
        before = entries.get(version - 1)
        if version == 1:
            found.append(Kept(entry, {}))
        elif before is None:
            found.append(Kept(entry, None))
        else:
            found.append(known.get(version) or Kept(entry, changes(before.policy, entry.policy)))
    return found


def _spans(versions: list[int]) -> str:
    """Return ascending versions as text, such as `3, 7 to 12`."""
    spans: list[list[int]] = []
    for version in versions:
        if spans and version == spans[-1][-1] + 1:
            spans[-1] = [spans[-1][0], version]
        else:
            spans.append([version])
    return ", ".join(" to ".join(map(str, span)) for span in spans)
