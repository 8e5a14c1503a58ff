"""The next safer rule of a profile whose promise live answers break."""

from typing import Any, Final

from serve.policy.document import DEFAULT, Policy
from serve.policy.ladder import Loss
from serve.policy.profile import RuleOrTarget, Settings
from serve.policy.resolution import ServedRung, nearest
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
        policy: in which the profile has a target.
        profile: its name.
        loss: of the promise that is broken.
        epsilon: what was promised.
        ladder: of the variant that broke it.
    """
    wish = _safer_wish(policy, profile, loss, epsilon, ladder)
    if profile == DEFAULT and not isinstance(policy.default, str):
        return policy.model_copy(update={"default": wish})
    name = policy.default if profile == DEFAULT else profile
    entry: Any = policy.profiles[str(name)]
    changed = entry.model_copy(update={"exit": wish}) if isinstance(entry, Settings) else wish
    return policy.model_copy(update={"profiles": {**policy.profiles, str(name): changed}})


def _safer_wish(
    policy: Policy, profile: str, loss: Loss, epsilon: float, ladder: ServedLadder
) -> RuleOrTarget:
    wish = policy.wishes[profile]
    if not isinstance(wish, TargetChoice) or loss not in _FIELDS:
        return NeverRule()
    flag = policy.settings_for(None if profile == DEFAULT else profile).flag
    if wish.target.decides and flag is None:
        return NeverRule()
    of_target = ladder.deciding(flag) if flag and wish.target.decides else ladder
    rungs = of_target.rungs(policy.limits)
    layers = nearest(wish.target, rungs).rung.expected_layers
    for bound in _smaller_bounds(rungs, loss, epsilon):
        target = _bounded(wish.target, loss, bound)
        found = nearest(target, rungs)
        if not found.problem and not found.rung.full_depth and found.rung.expected_layers > layers:
            return TargetChoice(target=target)
    return NeverRule()


def _smaller_bounds(rungs: tuple[ServedRung, ...], loss: Loss, epsilon: float) -> list[float]:
    """Return the epsilons that rungs are certified for, the next smaller one first."""
    certified = (rung.certificate(loss) for rung in rungs)
    return sorted({c.epsilon for c in certified if c and c.epsilon < epsilon}, reverse=True)


def _bounded(target: Target, loss: Loss, bound: float) -> Target:
    own = {name: getattr(target, name) for name in (*_FIELDS.values(), "max_loss")}
    given = {name: most for name, most in own.items() if most is not None}
    return Target.model_validate({**given, _FIELDS[loss]: bound})
