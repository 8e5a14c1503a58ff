"""The profiles that training and calibration give a model: what a text's answer may cost."""

from serve.bundle.manifest import Manifest
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


def with_profiles(manifest: Manifest) -> tuple[Policy, list[str]]:
    """Add the profiles that a bundle's policy lacks; leave others as they are.

    Returned with it is what was done, one sentence each.

    The default becomes `balanced` where the bundle had no policy: never to leave early, and no
    profile but the rule that its checkpoint states.
    """
    old = manifest.policy
    missing = {name: choice for name, choice in PROFILES.items() if name not in old.profiles}
    notes = [
        f"profile {name} stays a rule of its own, which no certificate backs"
        for name, choice in PROFILES.items()
        if isinstance(choice, TargetChoice)
        and not isinstance(old.profiles.get(name, choice), TargetChoice)
    ]
    if missing:
        notes.append(f"profiles added to the policy: {', '.join(missing)}")
    default, stated = old.default, manifest.trained_for.rule
    if default == NeverRule() and all(rule == stated for rule in old.profiles.values()):
        default = BALANCED
        notes.append(f"the policy's default, which never left early, is now {BALANCED}")
    own = {"default": default, "profiles": old.profiles | missing}
    return old.model_copy(update=own), notes
