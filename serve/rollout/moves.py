"""The moves of a rollout: from an entry of the policy's log to the next one."""

from collections.abc import Callable

from serve.errors import RolloutConflict
from serve.policy.document import Policy
from serve.policy.entry import VersionedPolicy, now
from serve.policy.live import Following
from serve.policy.rollout import Plan, Rollout, RolloutState

Moved = tuple[Policy, Rollout]


def start(plan: Plan, candidate: Callable[[Policy], Policy]) -> Following:
    """Begin with the first step; `candidate` makes the candidate of the live policy."""

    def following(entry: VersionedPolicy) -> Moved:
        if entry.running:
            raise RolloutConflict(
                f"a rollout is {entry.running.state} at {entry.running.percent:g} %; promote or "
                "abort it first"
            )
        return entry.policy, Rollout.of(plan, candidate(entry.policy), now())

    return following


def promote(answered: int) -> Following:
    """Go on to the next step; after the last one the candidate is the policy.

    `answered` is the number of answers that the candidate has given.
    """

    def following(entry: VersionedPolicy) -> Moved:
        rollout = _running(entry)
        if rollout.at_last:
            return rollout.candidate, rollout.become("promoted", None)
        return entry.policy, rollout.stepped(answered, now())

    return following


def pause(why: str | None) -> Following:
    """Keep the step's share until the rollout is resumed, promoted or ended."""

    def following(entry: VersionedPolicy) -> Moved:
        rollout = _running(entry)
        if rollout.state == "paused":
            raise RolloutConflict("the rollout is paused already; resume, promote or abort it")
        return entry.policy, rollout.become("paused", why)

    return following


def resume(answered: int) -> Following:
    """Begin the step anew; `answered` is as for `promote`."""

    def following(entry: VersionedPolicy) -> Moved:
        rollout = _running(entry)
        if rollout.state == "running":
            raise RolloutConflict("the rollout runs already; only a paused one can be resumed")
        return entry.policy, rollout.resumed(answered, now())

    return following


def end(state: RolloutState, why: str | None) -> Following:
    """Go back to the policy for all requests."""
    return lambda entry: (entry.policy, _running(entry).become(state, why))


def _running(entry: VersionedPolicy) -> Rollout:
    if entry.running is None:
        raise RolloutConflict(f"no rollout runs; the policy is at version {entry.version}")
    return entry.running
