"""The profiles that calibration adds to a bundle's policy."""

from models.profiles import BALANCED, PROFILES
from serve.bundle.manifest import Manifest
from serve.policy.document import Policy
from serve.policy.target import TargetChoice
from serve.rules import NeverRule


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
    default = old.default
    if default == NeverRule() and _without_policy(manifest):
        default = BALANCED
        notes.append(f"the policy's default, which never left early, is now {BALANCED}")
    own = {"default": default, "profiles": old.profiles | missing}
    return old.model_copy(update=own), notes


def _without_policy(manifest: Manifest) -> bool:
    stated = manifest.trained_for.rule
    return all(rule == stated for rule in manifest.policy.profiles.values())
