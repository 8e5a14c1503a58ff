"""The profiles that training and calibration give a model: what a text's answer may cost."""

from serve.policy.document import Policy
from serve.policy.profile import ProfileEntry
from serve.policy.target import Target, TargetChoice
from serve.rules import NeverRule

BALANCED = "balanced"

# Each precision resolves a target to a rule of its own; without certificates, to never.
PROFILES: dict[str, ProfileEntry] = {
    "exact": NeverRule(),
    BALANCED: TargetChoice(target=Target(max_disagreement=0.01)),
    "fast": TargetChoice(target=Target(max_disagreement=0.03)),
}


def profiles_policy() -> Policy:
    """Return the policy of a new model."""
    return Policy(default=BALANCED, profiles=PROFILES)
