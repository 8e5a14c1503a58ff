"""Can this model follow this rule?"""

import math
from collections.abc import Iterable
from functools import lru_cache

from serve.errors import InvalidRule
from serve.rules.agreement import PatienceRule, VotingRule
from serve.rules.certainty import ClassesRule, EntropyRule, thresholds_in
from serve.rules.exit_rule import ExitRule
from serve.rules.fixed import LayerRule
from serve.rules.rule import PartwiseRule
from serve.rules.traits import Task, Traits

_FIXED = ("layer", "never")
_OF_PARTS = ("entropy", "normalized_entropy", "confidence", "margin", "patience")
_RULES: dict[Task, tuple[str, ...]] = {
    "single_label": (*_OF_PARTS, "confident_patience", "voting", "learned", "classes", *_FIXED),
    "multi_label": (*_OF_PARTS, "confident_patience", "learned", *_FIXED),
    "token": (*_OF_PARTS, "confident_patience", "learned", *_FIXED),
    "regression": ("patience", "learned", *_FIXED),
}
_WHAT: dict[Task, str] = {
    "single_label": "a model that gives each text one label",
    "multi_label": "a model that gives each text any number of labels",
    "token": "a model that labels every token",
    "regression": "a regression, which has no probabilities",
}


def entropy_ceiling(num_labels: int) -> float:
    """Return the largest entropy threshold accepted: ln(labels), rounded up to one decimal.

    No entropy exceeds ln(labels), so anything larger is a mistake of unit (bits, per cent).
    The rounding admits the 0.7 that the literature uses for "always" with two labels.
    """
    return math.ceil(math.log(num_labels) * 10) / 10


def rules_for(traits: Traits) -> list[str]:
    """Return the names of the rules that a model can follow."""
    return [name for name in _RULES[traits.task] if name != "learned" or traits.learned]


# Most requests come with a rule that others came with.
@lru_cache(maxsize=1024)
def check_rule(rule: ExitRule, traits: Traits) -> ExitRule:
    """Return the rule if the model can follow it; of equal ones, as long as remembered, the same.

    Args:
        rule: the rule a request or a policy asks for.
        traits: of the model.

    Raises:
        InvalidRule: the model cannot follow it.
    """
    _check_task(rule, traits)
    _check_layers(rule, traits.exits)
    _check_one_per_exit("threshold", getattr(rule, "threshold", None), traits.exits)
    match rule:
        case EntropyRule():
            _check_entropy(rule, traits)
        case PatienceRule():
            _check_tolerance(rule, traits.task)
        case VotingRule():
            _check_voting(rule, traits.exits)
        case ClassesRule():
            _check_labels(rule, traits.labels)
    return rule


def _check_task(rule: ExitRule, traits: Traits) -> None:
    possible = rules_for(traits)
    if rule.rule == "learned" and not traits.learned:
        raise InvalidRule(
            "the model's exit heads have not learned to predict their own error, which rule "
            f"learned needs; the model can follow {_listed(possible)}"
        )
    if rule.rule not in possible:
        raise InvalidRule(
            f"rule {rule.rule} is not for {_WHAT[traits.task]}: it can follow {_listed(possible)}"
        )
    partwise = isinstance(rule, PartwiseRule) and rule.reduce is not None
    if partwise and traits.task == "single_label":
        raise InvalidRule(
            "reduce is for models that give several labels, or one per token; this one gives "
            "one label per text: leave reduce out"
        )


def _check_layers(rule: ExitRule, exits: tuple[int, ...]) -> None:
    depth = exits[-1]
    if isinstance(rule, LayerRule) and rule.layer not in exits:
        raise InvalidRule(f"layer {rule.layer} has no exit: {_has(exits)}")
    for name in ("min_layer", "max_layer"):
        bound = getattr(rule, name)
        if bound is not None and bound > depth:
            raise InvalidRule(f"{name} {bound} is beyond the model's {depth} layers")
    if rule.max_layer is not None and rule.max_layer < exits[0]:
        raise InvalidRule(f"max_layer {rule.max_layer} is before the first exit: {_has(exits)}")
    if not any((rule.min_layer or 1) <= e <= (rule.max_layer or depth) for e in exits):
        raise InvalidRule(
            f"there is no exit from min_layer {rule.min_layer} to max_layer {rule.max_layer}: "
            f"{_has(exits)}"
        )


def _check_one_per_exit(name: str, numbers: object, exits: tuple[int, ...]) -> None:
    if isinstance(numbers, tuple) and len(numbers) != len(exits):
        raise InvalidRule(
            f"{name} has {len(numbers)} numbers, one per exit would be {len(exits)}: {_has(exits)}"
        )


def _check_entropy(rule: EntropyRule, traits: Traits) -> None:
    labels = 2 if traits.task == "multi_label" else len(traits.labels)
    too_high = [t for t in thresholds_in(rule) if t > entropy_ceiling(labels)]
    if too_high:
        each = "for each label" if traits.task == "multi_label" else f"with {labels} labels"
        raise InvalidRule(
            f"entropy threshold {too_high[0]:g} is out of range: {each} the entropy is at most "
            f"{math.log(labels):.4g} nats, "
            f"so the threshold must be from 0 to {entropy_ceiling(labels):g}"
        )


def _check_tolerance(rule: PatienceRule, task: Task) -> None:
    if task == "regression" and rule.tolerance is None:
        raise InvalidRule(
            "patience on a regression needs tolerance: how far apart two values may be that agree"
        )
    if task != "regression" and rule.tolerance is not None:
        raise InvalidRule(
            "tolerance is for regressions; this model gives labels, which agree or do not: "
            "leave tolerance out"
        )


def _check_voting(rule: VotingRule, exits: tuple[int, ...]) -> None:
    _check_one_per_exit("weights", rule.weights, exits)
    weights = rule.weights or (1.0,) * len(exits)
    cast = [sum(weights[: i + 1]) for i in range(len(exits))]
    if rule.votes is not None and rule.votes > cast[-1]:
        raise InvalidRule(
            f"{rule.votes:g} votes are out of reach: all {len(exits)} exits together have "
            f"{cast[-1]:g}"
        )
    if rule.share is not None and rule.exponent is not None:
        within_reach = max(v / i**rule.exponent for i, v in enumerate(cast, start=1))
        if rule.share > within_reach:
            raise InvalidRule(
                f"share {rule.share:g} is out of reach: with exponent {rule.exponent:g} and "
                f"{len(exits)} exits it is at most {within_reach:.6g}"
            )


def _check_labels(rule: ClassesRule, labels: tuple[str, ...]) -> None:
    unknown = [label for label in rule.thresholds if label not in labels]
    if unknown:
        raise InvalidRule(f"no label {unknown[0]!r}; the model has {_listed(labels)}")


def _has(exits: tuple[int, ...]) -> str:
    return f"the model has exits at {_listed(map(str, exits))}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
