"""Where a wish of a policy becomes something else than it says, and what would keep it."""

from serve.policy.limits import Limits
from serve.policy.resolution import Resolution, ServedRung, nearest
from serve.policy.served_ladder import ServedLadder
from serve.policy.target import Target
from serve.rules import CompiledRule, ExitRule, LayerRule, NeverRule
from serve.rules.traits import Traits

# A bound of this many times full depth's time is a mistake in the unit.
_FAR = 100


def problem_of_rule(rule: ExitRule, limits: Limits, ladder: ServedLadder) -> str | None:
    """Return why a rule decides nothing, or not what it says; None if all is well."""
    bounded, traits = ladder.compile(limits.applied_to(rule)), ladder.traits
    last = traits.exits[bounded.last]
    same = (bounded.rule.min_layer, bounded.rule.max_layer) == (rule.min_layer, rule.max_layer)
    by = "" if same else f"with {_bounds(limits)}, "
    if isinstance(rule, LayerRule):
        return None
    if isinstance(rule, NeverRule):
        cut = bounded.last < ladder.compile(rule).last
        return f"{by}every text leaves at layer {last}" if cut else None
    if bounded.rule.looks_before:
        return None
    only = _only_exit(rule, bounded, traits)
    if only is None:
        return None
    if only == bounded.last:
        return f"{by}{_shown(rule)} lets no text leave before layer {last}, where all must"
    return (
        f"{by}{_shown(rule)} holds no text back: all leave at layer {traits.exits[only]}; "
        f'if that is what you want, say {{"rule":"layer","layer":{traits.exits[only]}}}'
    )


def _only_exit(rule: ExitRule, bounded: CompiledRule, traits: Traits) -> int | None:
    """Return the index of the exit where all texts leave; None if that depends on the text."""
    surely = rule.surely_leave(traits)
    for index in range(bounded.first, bounded.last):
        if surely[index] is not False:
            return index if surely[index] else None
    return bounded.last


def problem_of_target(
    target: Target, found: Resolution, limits: Limits, ladder: ServedLadder
) -> str | None:
    """Return why a target has not become what it would be without limits, or saves nothing."""
    if found.problem is not None:
        return found.problem + blame(target, limits, ladder)
    free = nearest(target, ladder.rungs(_free(limits)))
    same = _bare(free.rung.rule) == _bare(found.rung.rule)
    if not same or (free.certificate and not found.certificate):
        return (
            f"has become {_shown(found.rung.rule)} with {found.rung.expected_layers:.9g} layers "
            f"per text, not {_shown(free.rung.rule)} with {free.rung.expected_layers:.9g}"
            + blame(target, limits, ladder)
        )
    if why := why_full(target, found, ladder):
        return why
    if not found.rung.full_depth or target.losses:
        return None
    return "every text runs in full, which is fast enough" if _idle(target, found.rung) else None


def why_full(target: Target, found: Resolution, ladder: ServedLadder) -> str | None:
    """Return why a target that allows a loss runs every text in full; None if it does not."""
    if not found.rung.full_depth or target.lossless or not target.losses:
        return None
    reason = ladder.lacks(target) or "no certified rule loses as little"
    if ladder.certified and ladder.certified.metric is None and target.max_loss is not None:
        reason = (
            "max_loss is about right answers, and the rules here were certified by texts without "
            "labels. Certify with labelled ones, or ask for max_disagreement"
        )
    return f"every text runs in full: {reason}"


def _idle(target: Target, full: ServedRung) -> bool:
    """Tell whether full depth keeps the bounds by far, so that they bound nothing."""
    return (
        (target.speedup or 1) == 1
        and (target.max_layers is None or target.max_layers >= full.expected_layers)
        and (target.max_ms is None or target.max_ms >= _FAR * full.expected_ms)
    )


def blame(target: Target, limits: Limits, ladder: ServedLadder) -> str:
    """Return what in the limits keeps a target from its rule, as the end of a sentence."""
    rule = nearest(target, ladder.rungs(_free(limits))).rung.rule
    free = ladder.compile(rule)
    first, last = ladder.traits.exits[free.first], ladder.traits.exits[free.last]
    wrong = []
    if limits.min_layer is not None and free.rule.looks_before:
        wrong.append(f"min_layer {limits.min_layer}, where it needs none")
    elif limits.min_layer is not None and limits.min_layer > first:
        wrong.append(f"min_layer {limits.min_layer}, where it needs {first} or less")
    if limits.max_layer is not None and limits.max_layer < last:
        wrong.append(f"max_layer {limits.max_layer}, where it needs {last} or more")
    if not wrong:
        return ""
    return f"; the policy's limits change {_shown(rule)}: {' and '.join(wrong)}"


def _free(limits: Limits) -> Limits:
    """Return limits that take nothing away; `min_layer` 1 is there to keep out what is before."""
    return Limits(min_layer=1 if limits.min_layer == 1 else None)


def _bounds(limits: Limits) -> str:
    given = limits.model_dump(exclude_none=True, include={"min_layer", "max_layer"})
    return "the limits' " + " and ".join(f"{name} {layer}" for name, layer in given.items())


def _bare(rule: ExitRule) -> ExitRule:
    return rule.model_copy(update={"min_layer": None, "max_layer": None})


def _shown(rule: ExitRule) -> str:
    return rule.model_dump_json(exclude_none=True)
