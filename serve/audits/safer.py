"""The next safer rule of a profile whose promise live answers break."""

from typing import Any, Final

from serve.policy.document import DEFAULT, Policy
from serve.policy.ladder import Loss
from serve.policy.profile import RuleOrTarget, Settings
from serve.policy.resolution import nearest
from serve.policy.served_ladder import ServedLadder
from serve.policy.target import Target, TargetChoice
from serve.rules import NeverRule

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
    if wish.target.decides:
        flag = policy.settings_for(None if profile == DEFAULT else profile).flag
        if flag is None:
            return NeverRule()
        ladder = ladder.deciding(flag)
    rungs = ladder.rungs(policy.limits)
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
