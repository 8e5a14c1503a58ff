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


def with_profiles(manifest: Manifest, from_reference: bool) -> Policy:
    """Add the profiles that a bundle's policy lacks; leave an operator's own as they are.

    Those of an earlier calibration promise from the reference, or from full depth, as this one
    certifies.

    The default becomes `balanced` where the bundle had no policy: never to leave early, and no
    profile but the rule that its checkpoint states.
    """
    old, stated = manifest.policy, manifest.trained_for.rule
    own, others = PROFILES, FROM_REFERENCE
    if from_reference:
        own, others = others, own
    added = {name: own[name] for name in own if old.profiles.get(name) in (None, others[name])}
    no_policy = old.default == NeverRule() and all(r == stated for r in old.profiles.values())
    default = BALANCED if no_policy else old.default
    return old.model_copy(update={"default": default, "profiles": old.profiles | added})


def backed(policy: Policy, ladder: Ladder) -> Policy:
    """Let profiles promise from full depth where a ladder keeps nothing from the reference.

    A server would refuse such a profile: even the whole model may differ from the reference by
    more.
    """
    unbacked = {
        name: PROFILES[name]
        for name, choice in FROM_REFERENCE.items()
        if isinstance(choice, TargetChoice)
        and policy.profiles.get(name) == choice
        and not _keeps(ladder, choice.target)
    }
    return policy.model_copy(update={"profiles": policy.profiles | unbacked})


def changed(old: Policy, new: Policy, from_reference: bool) -> list[str]:
    """Return what a calibration has done to a policy and its profiles, one sentence each."""
    targets = [name for name, choice in PROFILES.items() if isinstance(choice, TargetChoice)]
    notes = [
        f"profile {name} stays a rule of its own, which no certificate backs"
        for name in targets
        if not isinstance(new.profiles[name], TargetChoice)
    ]
    if added := [name for name in PROFILES if name not in old.profiles]:
        notes.append(f"profiles added to the policy: {', '.join(added)}")
    for source, kind in (("the reference", FROM_REFERENCE), ("full depth", PROFILES)):
        turned = [
            name
            for name in targets
            if name in old.profiles and old.profiles[name] != new.profiles[name] == kind[name]
        ]
        if turned:
            notes.append(f"profiles that now promise from {source}: {', '.join(turned)}")
    if unbacked := [n for n in targets if from_reference and new.profiles[n] == PROFILES[n]]:
        notes.append(
            f"profiles that promise from full depth, as the reference is not certified to be so "
            f"near: {', '.join(unbacked)}; certify with more texts"
        )
    if old.default != new.default:
        notes.append(f"the policy's default, which never left early, is now {new.default}")
    return notes


def _keeps(ladder: Ladder, target: Target) -> bool:
    return any(
        all(
            any(own.loss == loss and own.epsilon <= most for own in rung.certificates)
            for loss, most in target.losses.items()
        )
        for rung in ladder.rungs
    )
