"""An entry of a policy's log as requests follow it, or the candidate of its rollout."""

from typing import NamedTuple, Self

from serve.policy.applied import AppliedPolicy
from serve.policy.audit import Audit
from serve.policy.document import Policy
from serve.policy.entry import VersionedPolicy
from serve.policy.rollout import ArmOf, Rollout
from serve.policy.served_ladder import ServedLadder


class Live(NamedTuple):
    """An entry of the log, and what it means for this model on this machine.

    Attributes:
        entry: of the log; of a candidate the same, with the candidate as its policy.
        applied: its policy.
        audit: which answers are audited.
        arm: of the rollout that runs; None without one.
        candidate: what a share of the requests follows; None without a rollout.
    """

    entry: VersionedPolicy
    applied: AppliedPolicy
    audit: Audit = Audit()
    arm: ArmOf | None = None
    candidate: "Live | None" = None

    @classmethod
    def of(cls, entry: VersionedPolicy, ladder: ServedLadder) -> Self:
        """Work out an entry, and the candidate of the rollout that runs in it.

        Raises:
            InvalidRule: the model cannot follow a rule.
        """
        live = cls(entry, AppliedPolicy(entry.policy, ladder), entry.policy.audit)
        rollout = entry.running
        if rollout is None:
            return live
        candidate = cls(
            entry.model_copy(update={"policy": rollout.candidate}),
            AppliedPolicy(rollout.candidate, ladder),
            _audited(rollout.candidate, rollout),
            rollout.arm("candidate"),
        )
        audit = _audited(entry.policy, rollout)
        return live._replace(audit=audit, arm=rollout.arm("live"), candidate=candidate)


def _audited(policy: Policy, rollout: Rollout) -> Audit:
    """Return which answers of an arm are audited: as many as the policy says, or more."""
    share = max(policy.audit.share, rollout.audit_share)
    return policy.audit.model_copy(update={"share": share})
