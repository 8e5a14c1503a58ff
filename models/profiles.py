"""The profiles that training and calibration give a model: what a text's answer may cost."""

from typing import Literal

from serve.bundle.manifest import Manifest
from serve.policy.document import Policy
from serve.policy.profile import ProfileEntry
from serve.policy.target import Target, TargetChoice
from serve.rules import NeverRule

BALANCED = "balanced"


def _profiles(of: Literal["reference"] | None = None) -> dict[str, ProfileEntry]:
    shares = {BALANCED: 0.01, "fast": 0.03}
    targets = {
        name: TargetChoice(target=Target.model_validate({"max_disagreement": share, "from": of}))
        for name, share in shares.items()
    }
    return {"exact": NeverRule(), **targets}


# Each precision resolves a target to a rule of its own; without certificates, to never.
PROFILES = _profiles()
# Of a bundle that is certified from another classifier.
FROM_REFERENCE = _profiles("reference")


def profiles_policy() -> Policy:
    """Return the policy of a new model."""
    return Policy(default=BALANCED, profiles=PROFILES)


def with_profiles(manifest: Manifest, from_reference: bool) -> tuple[Policy, list[str]]:
    """Add the profiles that a bundle's policy lacks; leave an operator's own as they are.

    Those of an earlier calibration promise from the reference, or from full depth, as this one
    certifies. Returned with the policy is what was done, one sentence each.

    The default becomes `balanced` where the bundle had no policy: never to leave early, and no
    profile but the rule that its checkpoint states.
    """
    old = manifest.policy
    profiles, others = PROFILES, FROM_REFERENCE
    if from_reference:
        profiles, others = others, profiles
    missing = {name: choice for name, choice in profiles.items() if name not in old.profiles}
    turned = {
        name: choice
        for name, choice in profiles.items()
        if choice != others[name] and old.profiles.get(name) == others[name]
    }
    notes = [
        f"profile {name} stays a rule of its own, which no certificate backs"
        for name, choice in profiles.items()
        if isinstance(choice, TargetChoice)
        and not isinstance(old.profiles.get(name, choice), TargetChoice)
    ]
    if missing:
        notes.append(f"profiles added to the policy: {', '.join(missing)}")
    if turned:
        source = "the reference" if from_reference else "full depth"
        notes.append(f"profiles that now promise from {source}: {', '.join(turned)}")
    default, stated = old.default, manifest.trained_for.rule
    if default == NeverRule() and all(rule == stated for rule in old.profiles.values()):
        default = BALANCED
        notes.append(f"the policy's default, which never left early, is now {BALANCED}")
    own = {"default": default, "profiles": old.profiles | missing | turned}
    return old.model_copy(update=own), notes
