"""The moves of a rollout, and which of them it makes by itself.

Every replica looks for itself. A move is made from the version that was judged, so it is made once.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from serve.audits.counts import AuditCounts, AuditKey, Tally, counts_of_all
from serve.audits.webhook import Webhook
from serve.errors import RolloutConflict, VersionConflict
from serve.policy.document import Policy
from serve.policy.entry import Action, Change, RolloutAction, VersionedPolicy, now
from serve.policy.live import LivePolicy, NextPolicy
from serve.policy.rollout import ArmOf, Plan, Rollout, RolloutState
from serve.policy.store import CountStore
from serve.rollout.judged import SLOW_SHARE, Judged, judge
from serve.rollout.traffic import ArmTraffic

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


BY: Final = "rollout"
# A minute, in which replicas count the last answers of a rollout that has ended.
_LOOKS_AFTER_END: Final = 30

# From the key of an arm and what it has answered: counts both with the audits.
Count = Callable[[AuditKey, Tally], None]


class RolloutWatch:
    """Counts the arms of one model's rollout in this replica, and moves it by those of all."""

    def __init__(
        self,
        model: str,
        policy: LivePolicy,
        exits: Sequence[int],
        store: CountStore,
        count: Count,
    ) -> None:
        """Take the model's policy, the layers where texts can leave, and where replicas count."""
        self._model, self._policy, self._exits, self._count = model, policy, exits, count
        self._store, self._counts = store, AuditCounts()
        self._latest: tuple[AuditCounts, Rollout | None, Judged | None] = self._counts, None, None
        self._traffic: dict[ArmOf, ArmTraffic] = {}
        self._webhook = Webhook()
        self._judged, self._looks_left = "", 0  # the last rollout, and looks at it after its end

    def traffic(self, arm: ArmOf) -> ArmTraffic:
        """Return what counts the requests of an arm. Any thread."""
        return self._traffic.get(arm) or self._traffic.setdefault(arm, ArmTraffic(arm))

    def watch(self) -> None:
        """Count what was answered, and look."""
        self.count()
        self.look()

    def count(self) -> None:
        """Count with the audits what was answered since the last call."""
        for arm, traffic in list(self._traffic.items()):
            if taken := traffic.taken():
                self._count(AuditKey.of_arm(arm), Tally(traffic=taken))
            elif arm.rollout != getattr(self._policy.current.running, "id", ""):
                self._traffic.pop(arm, None)

    def judge(self, rollout: Rollout) -> Judged:
        """Judge a rollout by the counts of all replicas; the store may block.

        Raises:
            Unavailable: the store does not answer.
        """
        self._counts = counts_of_all(self._model, self._store)
        return self.latest(rollout)

    def latest(self, rollout: Rollout) -> Judged:
        """Judge a rollout by the counts that were read last."""
        counts, (of, judged_of, judged) = self._counts, self._latest
        if judged is None or of is not counts or judged_of is not rollout:
            judged = judge(rollout, counts, self._exits)
            self._latest = counts, rollout, judged
        return judged

    def look(self) -> None:
        """Judge the rollout that runs, if any, and make the move that follows.

        Raises:
            Unavailable: the store does not answer.
        """
        entry = self._policy.refresh()
        rollout = self._policy.rollout
        if rollout is None:
            return
        if rollout.active or rollout.id != self._judged:
            self._judged, self._looks_left = rollout.id, _LOOKS_AFTER_END
        if not self._looks_left:
            return
        self._looks_left -= 1
        judged = self.judge(rollout)
        # A replica that cannot follow the stored policy has not judged what the others follow.
        if entry.running is None or self._policy.unfollowed:
            return
        if due := _due(entry.running, judged, now()):
            action, why = due
            move = partial(moved, action=action, answered=judged.answered, why=why)
            change = Change(BY, why, action, automatic=True)
            try:
                made = self._policy.change(move, entry.version, change).new
            except VersionConflict:
                return  # another replica or a client came first, and the next look is at theirs
            if action == "failed" and (url := entry.policy.guard.webhook):
                versions = {"version": entry.version, "new_version": made.version}
                told = {"model": self._model, "rollout": "failed", "why": why, **versions}
                self._webhook.tell(url, told)


def too_early(rollout: Rollout, judged: Judged, at: str) -> bool:
    """Tell whether a step has not held long enough, or has too few answers, to be judged."""
    answers = judged.answered - rollout.answered
    return rollout.held_s(at) < rollout.hold_s or answers < rollout.min_answers


def _due(rollout: Rollout, judged: Judged, at: str) -> tuple[RolloutAction, str] | None:
    """Return the move that follows from what was judged, if any, and why."""
    why = f"at {rollout.percent:g} %: {_findings(rollout, judged)}"
    if judged.verdict == "failed":
        return "failed", why
    if rollout.state == "paused" or too_early(rollout, judged, at):
        return None
    wanted = rollout.on_inconclusive
    if wanted == "promote" and judged.unknown:
        wanted = "pause"
    if judged.verdict == "successful" or wanted == "promote":
        return ("promote" if rollout.at_last else "rollout"), why
    return wanted, why


def _findings(rollout: Rollout, judged: Judged) -> str:
    """Say of each bound what was found, for people."""
    arm, said = judged.arms["candidate"], []
    for name, bound in rollout.bounds.given.items():
        _, found = arm.figure(name)
        if name == "layers":
            what = f"mean exit layer {found.low:.3g} to {found.high:.3g}, at most {bound:g}"
        else:
            most, of = (
                (SLOW_SHARE, f"slower than {bound:g} ms") if name == "p99_ms" else (bound, name)
            )
            what = (
                f"{of} {100 * found.low:.3g} to {100 * found.high:.3g} %, at most {100 * most:g} %"
            )
        said.append(f"{arm.verdicts[name]}: {what}")
    if "disagreement" in arm.verdicts and (unseen := arm.disagreement.unseen):
        said.append(f"overload had degraded {unseen} of {arm.answers} answers, which no audit sees")
    return "; ".join(said)
