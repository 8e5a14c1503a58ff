"""What follows when live answers break a promise: an alarm, and a safer rule if wanted.

Every replica looks for itself. The store makes what follows happen once: a change of the policy is
made from the version that was judged, and an alarm is told by the replica that first notes it.
"""

import hashlib
import logging
import math
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from serve.audits.counts import Counts, Key
from serve.audits.promises import live_keys
from serve.audits.quality import ProfileQuality, PromiseQuality, profile_quality, requested
from serve.audits.safer import safer_policy
from serve.audits.summed import SummedCounts
from serve.audits.webhook import Webhook
from serve.errors import VersionConflict
from serve.logs import TRAIL, fields
from serve.policy.audit import Guard
from serve.policy.entry import Change, VersionedPolicy
from serve.policy.live import Live, LivePolicy
from serve.policy.served_ladder import ServedLadder
from serve.policy.store import CountStore

trail = logging.getLogger(TRAIL)

_LOOK_EVERY_S: Final = 5.0


class Judged(NamedTuple):
    """What audits say of one version of a policy.

    Attributes:
        live: the policy.
        profiles: of the policy.
        requests: targets of requests themselves, and what has answered under overload.
    """

    live: Live
    profiles: Mapping[Key, ProfileQuality]
    requests: Mapping[Key, ProfileQuality]


class Alarm(NamedTuple):
    """A promise that live answers break.

    Attributes:
        key: whose promise it is.
        version: of the policy that was judged.
        guard: of that policy.
        promise: what audits say of it.
        new_version: of the policy with a safer rule; None where it stays as it is.
    """

    key: Key
    version: int
    guard: Guard
    promise: PromiseQuality
    new_version: int | None = None

    @property
    def name(self) -> str:
        """The same for the same promise, in every replica."""
        text = f"{self.key.profile} {self.promise.loss} {self.key.promise}"
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    @property
    def sentence(self) -> str:
        """What has happened, for people."""
        kept = self.promise
        low, high = kept.interval or (0.0, 1.0)
        return (
            f"{self.key.profile}: {kept.loss} of at most {100 * kept.epsilon:g} % is promised, and "
            f"{kept.lost} of {kept.texts} audited texts show {100 * low:.2g} to {100 * high:.2g} %"
        )

    @property
    def data(self) -> dict[str, Any]:
        """JSON data for logs and webhooks."""
        return {
            "profile": self.key.profile,
            "version": self.version,
            "new_version": self.new_version,
            "why": self.sentence,
            **self.promise.model_dump(mode="json", exclude={"state"}),
        }


class Guardrail:
    """Watches the promises of one model, in one replica."""

    def __init__(
        self,
        model: str,
        policy: LivePolicy,
        ladder: ServedLadder,
        store: CountStore,
    ) -> None:
        """Take the model's policy and rungs, and the store that all replicas share."""
        self._model, self._policy, self._ladder, self._store = model, policy, ladder, store
        self._summed, self._counts = SummedCounts(model, store), Counts()
        self._noted: set[str] = set()
        self._webhook = Webhook()
        self._looked_s = -math.inf

    def watch(self) -> None:
        """Look, if the last time is long enough ago, and tell the policy's webhook."""
        now_s = time.monotonic()
        if now_s - self._looked_s < _LOOK_EVERY_S:
            return
        self._looked_s = now_s
        for alarm in self.look():
            if url := alarm.guard.webhook:
                self._webhook.tell(url, {"model": self._model, **alarm.data})

    def judge(self) -> Judged:
        """Return what the audits of all replicas say of the live policy; the store may block.

        Raises:
            Unavailable: the store does not answer.
        """
        self._counts = self._summed()
        return self.latest()

    def latest(self) -> Judged:
        """Return the same by the counts that were read last."""
        live, counts = self._policy.live, self._counts
        known, delta = dict(counts), live.entry.policy.guard.delta
        profiles = {
            key: profile_quality(key, known.get(key), delta, self._expected(live, key))
            for key in live_keys(live)
        }
        own = {key: profile_quality(key, known[key], delta, {}) for key in requested(counts)}
        return Judged(live, profiles, own)

    def look(self) -> list[Alarm]:
        """Judge, and do what the policy wants; return the alarms that this replica is to tell.

        Raises:
            Unavailable: the store does not answer.
        """
        self._policy.refresh()
        judged = self.judge()
        entry = judged.live.entry
        found = list(_broken(entry, judged.profiles))
        others = list(_broken(entry, judged.requests))
        # One whose stored policy cannot be followed here has not judged what others follow.
        if entry.policy.guard.on_broken_promise == "safer" and not self._policy.unfollowed:
            told = [*self._made_safer(judged.live, found), *filter(self._first, others)]
        else:
            told = [*filter(self._first, (*found, *others))]
        for alarm in told:
            line = {"model": self._model, **alarm.data}
            trail.warning("promise broken", extra=fields(**line))
        return told

    def _made_safer(self, live: Live, found: list[Alarm]) -> list[Alarm]:
        policy = live.entry.policy
        for alarm in found:
            promise = alarm.promise
            policy = safer_policy(
                policy, alarm.key.profile, promise.loss, promise.epsilon, self._ladder
            )
        if not found:
            return []
        why = "; ".join(alarm.sentence for alarm in found)
        change = Change("guardrail", why, "guardrail")
        try:
            made = self._policy.replace(policy, live.entry.version, change)
        except VersionConflict:
            return []  # another replica or a client came first, and the next look is at theirs
        return [alarm._replace(new_version=made.new.version) for alarm in found]

    def _first(self, alarm: Alarm) -> bool:
        """Note an alarm by its name; return whether it is a new one."""
        if alarm.name in self._noted:
            return False
        first = self._store.note_alarm(self._model, alarm.name)
        self._noted.add(alarm.name)
        return first

    def _expected(self, live: Live, key: Key) -> dict[int, float]:
        """Return how many of the certifying texts leave at each layer; empty if unknown."""
        found = live.applied.named[key.profile]
        if found.resolution is None or self._ladder.certified is None:
            return {}
        return dict(zip(self._ladder.traits.exits, found.resolution.rung.exit_shares, strict=True))


def _broken(entry: VersionedPolicy, found: Mapping[Key, ProfileQuality]) -> Iterator[Alarm]:
    for key, quality in found.items():
        for promise in quality.promises:
            if promise.state == "broken":
                yield Alarm(key, entry.version, entry.policy.guard, promise)
