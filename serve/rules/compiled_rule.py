"""One exit rule, checked against one model and worked out for it.

A `CompiledRule` is made where a request's rule is resolved. Rows carry it through the engine, so
that nothing there asks again what the rule means for this model.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from serve.errors import InvalidRule
from serve.rules.criterion import Criterion, FreshColumns
from serve.rules.registry import rules_for
from serve.rules.rule import Rule
from serve.rules.small import SmallRule
from serve.rules.traits import Traits, listed

# Below any gap: the row may always leave.
_MAY_LEAVE = -1.0


@dataclass(frozen=True, slots=True, eq=False)
class CompiledRule:
    """A rule in terms of one model's exit indices, labels and task.

    Attributes:
        rule: what was asked for.
        criterion: judges the rows that have this rule.
        first: index of the first exit at which a row may leave.
        last: index of the exit at which a row leaves at the latest.
        first_heard: index of the first exit whose output the rule needs.
        bounded: whether the rule's layer bounds exclude some exit.
        columns: what a fresh row has in each column of `RuleState`, without the axis of rows.
        stay_gaps: (exits,) a row with one label surely stays at an exit while its two largest
            logits lie closer together than this; None where logits alone do not tell.
        table: the table's confidence from which on a row leaves before the first layer; None where
            the rule does not look at it, or may not.
        small: by what a row leaves in the small model in front, under the same conditions.
    """

    rule: Rule
    criterion: Criterion
    first: int
    last: int
    first_heard: int
    bounded: bool
    columns: FreshColumns
    stay_gaps: tuple[float, ...] | None
    table: float | None = None
    small: SmallRule | None = None


@lru_cache(maxsize=256)
def compile_rule(rule: Rule, traits: Traits, temperatures: tuple[float, ...] = ()) -> CompiledRule:
    """Check a rule against a model and work it out; equal rules give the same object.

    There is one temperature per exit; without them all are 1.

    Raises:
        InvalidRule: the model cannot follow the rule.
    """
    check_rule(rule, traits)
    first, last = rule.exits_between(traits.exits)
    criterion = rule.criterion(traits)
    temperatures = temperatures or (1.0,) * len(traits.exits)
    with np.errstate(over="ignore"):  # a threshold beyond float32 is infinite
        columns = rule.columns(traits)
    # With other columns a rule remembers earlier exits, and one exit's logits do not tell.
    forgets = columns.keys() <= {"threshold"}
    return CompiledRule(
        rule=rule,
        criterion=criterion,
        first=first,
        last=last,
        first_heard=criterion.first_heard(first, last),
        bounded=first > 0 or last < len(traits.exits) - 1,
        columns=columns,
        stay_gaps=_stay_gaps(rule, criterion, traits, temperatures) if forgets else None,
        table=None if rule.min_layer else rule.table,
        small=None if rule.min_layer else rule.small,
    )


def check_rule(rule: Rule, traits: Traits) -> None:
    """Raise `InvalidRule`, saying why, if a model cannot follow a rule."""
    reason = rule.unsuited(traits)
    if reason:
        raise InvalidRule(
            f"rule {rule.rule} {reason}; the model can follow {listed(rules_for(traits))}"
        )
    rule.check(traits)


def _stay_gaps(
    rule: Rule, criterion: Criterion, traits: Traits, temperatures: tuple[float, ...]
) -> tuple[float, ...] | None:
    num_labels, num_exits = len(traits.labels), len(traits.exits)
    if traits.task != "single_label" or num_labels < 2:
        return None
    pairs = list(zip(rule.threshold_per_exit(num_exits), temperatures, strict=True))
    # Worked out once for equal exits: a rule may look for its gap step by step.
    gap_of = {pair: criterion.stay_gap(pair[0], num_labels, pair[1]) for pair in set(pairs)}
    gaps = [gap_of[pair] for pair in pairs]
    if any(map(math.isnan, gaps)):
        return None
    first, last = rule.exits_between(traits.exits)
    inside = gaps[first:last]
    return (*[math.inf] * first, *inside, *[_MAY_LEAVE] * (num_exits - last))
