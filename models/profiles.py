"""The profiles that training and calibration give a model: what a text's answer may cost."""

from typing import Literal

from serve.bundle.manifest import Manifest
from serve.policy.document import Policy
from serve.policy.ladder import Ladder
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


# Each precision resolves a target to a rule of its own; without certificates, to never, which
# differs from full depth in no text.
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


def backed(policy: Policy, ladder: Ladder) -> tuple[Policy, list[str]]:
    """Let profiles promise from full depth where a ladder keeps nothing from the reference.

    A served policy with such a profile would be refused: even the whole model may differ from the
    reference by more. Returned with the policy is one sentence for each profile.
    """
    kept = dict(policy.profiles)
    for name, choice in FROM_REFERENCE.items():
        if (
            isinstance(choice, TargetChoice)
            and kept.get(name) == choice
            and not _keeps(ladder, choice.target)
        ):
            kept[name] = PROFILES[name]
    notes = [
        f"profile {name} promises from full depth: no rule of {ladder.precision} is certified to "
        "differ from the reference that seldom; certify with more texts"
        for name in kept
        if kept[name] != policy.profiles[name]
    ]
    return policy.model_copy(update={"profiles": kept}), notes


def _keeps(ladder: Ladder, target: Target) -> bool:
    return any(
        all(
            any(own.loss == loss and own.epsilon <= most for own in rung.certificates)
            for loss, most in target.losses.items()
        )
        for rung in ladder.rungs
    )
