"""What follows when live answers break a promise: an alarm, and a safer rule if wanted.

Every replica looks for itself. The store makes what follows happen once: a change of the policy is
made from the version that was judged, and an alarm is told by the replica that first notes it.
"""

import hashlib
import logging
from typing import Any, Final, NamedTuple

from serve.audits.counts import AuditCounts, AuditKey, counts_of_all
from serve.audits.quality import PolicyQuality, ProfileQuality, PromiseQuality, policy_quality
from serve.audits.webhook import Webhook
from serve.errors import VersionConflict
from serve.logs import TRAIL, fields
from serve.policy.document import DEFAULT, Policy
from serve.policy.entry import Change
from serve.policy.ladder import Loss
from serve.policy.live import Live, LivePolicy
from serve.policy.profile import RuleOrTarget, Settings
from serve.policy.resolution import nearest
from serve.policy.served_ladder import ServedLadder
from serve.policy.store import CountStore
from serve.policy.target import Target, TargetChoice
from serve.rules import NeverRule

trail = logging.getLogger(TRAIL)


class Alarm(NamedTuple):
    """A promise that live answers break.

    Attributes:
        key: the answers that break it.
        version: version of the policy that was judged.
        promise: what audits say of the promise.
        new_version: version of the policy with a safer rule; None where no rule was changed.
    """

    key: AuditKey
    version: int
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
        self, model: str, policy: LivePolicy, ladder: ServedLadder, store: CountStore
    ) -> None:
        """Take the model's policy and rungs, and the store that all replicas share."""
        self._model, self._policy, self._ladder, self._store = model, policy, ladder, store
        self._counts = AuditCounts()
        self._latest: tuple[AuditCounts, PolicyQuality | None] = self._counts, None
        self._noted: set[str] = set()
        self._webhook = Webhook()

    def latest(self) -> PolicyQuality:
        """Return what the audits of all replicas, as they were read last, say of the policy."""
        live, counts = self._policy.live, self._counts
        of, judged = self._latest
        # Judged once: many watch, and it takes a millisecond for each profile.
        if of is not counts or judged is None or judged.live is not live:
            judged = policy_quality(live, counts, self._ladder)
            self._latest = counts, judged
        return judged

    def look(self) -> list[Alarm]:
        """Judge, do what the policy wants, and tell its webhook; return what this replica tells.

        Raises:
            Unavailable: the store does not answer.
        """
        self._policy.refresh()
        self._counts = counts_of_all(self._model, self._store)
        judged = self.latest()
        guard = judged.live.entry.policy.guard
        found, others = (_alarms(judged.live, each) for each in (judged.profiles, judged.requests))
        # A replica that cannot follow the stored policy has not judged what others follow.
        if guard.on_broken_promise == "safer" and not self._policy.unfollowed:
            told = self._made_safer(judged.live, found) + self._new(others)
        else:
            told = self._new(found + others)
        for alarm in told:
            data = {"model": self._model, **alarm.data}
            trail.warning("promise broken", extra=fields(**data))
            if guard.webhook:
                self._webhook.tell(guard.webhook, data)
        return told

    def _made_safer(self, live: Live, found: list[Alarm]) -> list[Alarm]:
        """Put safer rules in place of all that broke a promise; return those that were changed."""
        if not found:
            return []
        policy = live.entry.policy
        for alarm in found:
            name, promise = alarm.key.profile, alarm.promise
            policy = safer_policy(policy, name, promise.loss, promise.epsilon, self._ladder)
        why = "; ".join(alarm.sentence for alarm in found)
        change = Change("guardrail", why, "guardrail")
        try:
            made = self._policy.change(policy, live.entry.version, change)
        except VersionConflict:
            return []  # another replica or a client came first, and the next look is at theirs
        return [alarm._replace(new_version=made.new.version) for alarm in found]

    def _new(self, alarms: list[Alarm]) -> list[Alarm]:
        """Note alarms by their names; return those that no replica has noted before."""
        unheard = [alarm for alarm in alarms if alarm.name not in self._noted]
        new = [alarm for alarm in unheard if self._store.note_alarm(self._model, alarm.name)]
        self._noted.update(alarm.name for alarm in unheard)
        return new


def _alarms(live: Live, judged: dict[AuditKey, ProfileQuality]) -> list[Alarm]:
    return [
        Alarm(key, live.entry.version, promise)
        for key, quality in judged.items()
        for promise in quality.promises
        if promise.state == "broken"
    ]


# The field of a target that bounds a loss which audits see.
_FIELDS: Final[dict[Loss, str]] = {
    "disagreement": "max_disagreement",
    "missed": "max_missed",
    "false_alarms": "max_false_alarms",
}


def safer_policy(
    policy: Policy, profile: str, loss: Loss, epsilon: float, ladder: ServedLadder
) -> Policy:
    """Return a policy in which a profile, or `default`, loses less of what was promised.

    Its exit becomes the target of the next smaller epsilon that rules are certified for, or else
    the rule never. It never has fewer layers than before, and its other bounds on losses stay;
    those on speed go.

    Args:
        policy: a policy in which the profile has a target.
        profile: the profile's name, or `default`.
        loss: the loss whose promise is broken.
        epsilon: what was promised.
        ladder: the rungs of the variant that broke it.
    """
    wish = _safer_wish(policy, profile, loss, epsilon, ladder)
    name = policy.default if profile == DEFAULT else profile
    if not isinstance(name, str):
        return policy.model_copy(update={"default": wish})
    entry: Any = policy.profiles[name]
    changed = entry.model_copy(update={"exit": wish}) if isinstance(entry, Settings) else wish
    return policy.model_copy(update={"profiles": {**policy.profiles, name: changed}})


def _safer_wish(
    policy: Policy, profile: str, loss: Loss, epsilon: float, ladder: ServedLadder
) -> RuleOrTarget:
    wish = policy.wishes[profile]
    if not isinstance(wish, TargetChoice) or loss not in _FIELDS:
        return NeverRule()
    flag = policy.settings_for(None if profile == DEFAULT else profile).flag
    if wish.target.decides:
        if flag is None:
            return NeverRule()
        ladder = ladder.deciding(flag)
    rungs = ladder.rungs(policy.limits.flagging() if flag else policy.limits)
    layers = nearest(wish.target, rungs).rung.expected_layers
    certified = (rung.certificate(loss) for rung in rungs)
    smaller = {c.epsilon for c in certified if c and c.epsilon < epsilon}
    for bound in sorted(smaller, reverse=True):
        target = _bounded(wish.target, loss, bound)
        found = nearest(target, rungs)
        if not found.problem and not found.rung.full_depth and found.rung.expected_layers > layers:
            return TargetChoice(target=target)
    return NeverRule()


def _bounded(target: Target, loss: Loss, bound: float) -> Target:
    """Return a target's bounds on losses alone, with another one for this loss."""
    own = target.model_dump(include={*_FIELDS.values(), "max_loss"}, exclude_none=True)
    return Target.model_validate({**own, _FIELDS[loss]: bound})
