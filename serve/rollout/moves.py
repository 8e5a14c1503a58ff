"""The moves of a rollout: from a version of the policy to the next one."""

from typing import Final

from serve.errors import RolloutConflict
from serve.policy.document import Policy
from serve.policy.entry import Action, VersionedPolicy, now
from serve.policy.live import NextPolicy
from serve.policy.rollout import Plan, Rollout, RolloutState

_ENDS: Final[dict[str, RolloutState]] = {"abort": "aborted", "failed": "failed"}


def started(entry: VersionedPolicy, plan: Plan, candidate: Policy) -> NextPolicy:
    """Begin with the first step.

    Raises:
        RolloutConflict: a rollout runs.
    """
    if entry.running:
        raise RolloutConflict(
            f"a rollout is {entry.running.state} at {entry.running.percent:g} %; promote or abort "
            "it first"
        )
    return NextPolicy(entry.policy, Rollout.of(plan, candidate, now()))


def moved(entry: VersionedPolicy, action: Action, answered: int, why: str | None) -> NextPolicy:
    """Move the rollout that runs.

    Args:
        entry: the version that has it.
        action: `rollout` and `promote` go on to the next step, after the last one the candidate is
            the policy. `pause` keeps the share, and `resume` begins the step anew. `abort` and
            `failed` go back to the policy for all requests.
        answered: the number of answers that the candidate has given.
        why: the reason.

    Raises:
        RolloutConflict: no rollout runs, or it is paused already, or not paused.
    """
    rollout = entry.running
    if rollout is None:
        raise RolloutConflict(f"no rollout runs; the policy is at version {entry.version}")
    if end := _ENDS.get(action):
        return NextPolicy(entry.policy, rollout.become(end, why))
    if action == "pause":
        if rollout.state == "paused":
            raise RolloutConflict("the rollout is paused already; resume, promote or abort it")
        return NextPolicy(entry.policy, rollout.become("paused", why))
    if action == "resume":
        if rollout.state == "running":
            raise RolloutConflict("the rollout runs already; only a paused one can be resumed")
        return NextPolicy(entry.policy, rollout.at_step(rollout.step, answered, now()))
    if rollout.at_last:
        return NextPolicy(rollout.candidate, rollout.become("promoted", None))
    return NextPolicy(entry.policy, rollout.at_step(rollout.step + 1, answered, now()))
