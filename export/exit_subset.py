"""The parts of a model's policy and calibration that hold for the exported exits."""

from collections.abc import Iterable

from serve.bundle.calibration import Calibration
from serve.bundle.manifest import Precision
from serve.errors import InvalidRule
from serve.policy.document import DEFAULT, Policy
from serve.policy.profile import ProfileEntry, Settings
from serve.policy.target import TargetChoice
from serve.rules import NeverRule, Rule, check_rule
from serve.rules.traits import Traits


def fitting_policy(policy: Policy, traits: Traits) -> tuple[Policy, list[str]]:
    """Return the policy without rules that do not fit these exits, and a note for each of them."""

    def fits(entry: ProfileEntry) -> bool:
        wish = entry.exit if isinstance(entry, Settings) else entry
        return wish is None or isinstance(wish, TargetChoice) or _fits(wish, traits)

    notes = []
    limits, default = policy.limits, policy.default
    profiles = {name: rule for name, rule in policy.profiles.items() if fits(rule)}
    for name in sorted(policy.profiles.keys() - profiles.keys()):
        notes.append(f"profile {name!r} was dropped: exits {list(traits.exits)} cannot follow it")
    if not (default in profiles if isinstance(default, str) else fits(default)):
        notes.append("the default rule became 'never': it does not fit the exits")
        default = NeverRule()
    if not fits(NeverRule(min_layer=limits.min_layer, max_layer=limits.max_layer)):
        notes.append("the limits' layer bounds were dropped: they do not fit the exits")
        limits = limits.model_copy(update={"min_layer": None, "max_layer": None})
    named = {DEFAULT, *profiles}
    detectors = {each: name for each, name in policy.detectors.items() if name in named}
    notes += [
        f"detector {each!r} was dropped with its profile"
        for each in policy.detectors
        if each not in detectors
    ]
    own = {"default": default, "profiles": profiles, "limits": limits, "detectors": detectors}
    fitting = policy.model_copy(update=own)
    fitting.check(traits)
    return fitting, notes


def fitting_calibration(
    calibration: Calibration, exits: tuple[int, ...], precisions: Iterable[Precision]
) -> tuple[Calibration, list[str]]:
    """Return the figures that hold for these exits and precisions, and notes on missing ones.

    Ladders stay: which of them hold is known once the weights have been written.
    """
    wanted = set(precisions)
    variants = {p: v for p, v in calibration.variants.items() if p in wanted}
    notes = [
        f"{p}: no figures of exits; they were measured on another precision"
        for p in sorted(wanted - variants.keys())
        if calibration.variants
    ]
    return calibration.model_copy(update={"variants": variants}).on_exits(exits), notes


def _fits(rule: Rule, traits: Traits) -> bool:
    try:
        check_rule(rule, traits)
    except InvalidRule:
        return False
    return True
