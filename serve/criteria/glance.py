"""Whether a row that is alone stays at an exit: known beforehand, or seen without arrays.

Between two runs of a large segment the processor's caches hold weights and nothing of ours. What
judges a batch then takes 100 to 200 microseconds for a single row; two numbers compared take ten.
A glance is for rows that surely stay. Whoever may leave is judged in full, with its state as it
was before, so that a glance decides nobody's answer.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from serve.criteria.gaps import least_gaps
from serve.criteria.rule_state import RuleState
from serve.engine.runner import Gaps
from serve.rules import ExitRule, PatienceRule
from serve.rules.traits import Traits

# Takes the logits, which exit it is, counted from 0, and the row's columns. Returns whether the
# row stays; if so, its columns are as if it had been judged.
Glance: TypeAlias = Callable[[list[float], int, RuleState], bool]


@lru_cache(maxsize=1024)
def glance_at(rule: ExitRule, traits: Traits, temperatures: tuple[float, ...]) -> Glance | None:
    """Return what a glance at a row with this rule tells; None if it tells nothing.

    Args:
        rule: checked against the model.
        traits: of the model.
        temperatures: one per exit.
    """
    if isinstance(rule, PatienceRule) and tells_labels(traits):
        return count_on
    gaps = gaps_at(rule, traits, temperatures)
    return None if gaps is None else _by_gap(tuple(gaps.tolist()))


@lru_cache(maxsize=1024)
def gaps_at(rule: ExitRule, traits: Traits, temperatures: tuple[float, ...]) -> Gaps | None:
    """Return `least_gaps` for those who compare in float32, not to be written to.

    None where two logits do not tell.
    """
    gaps = least_gaps(rule, traits, temperatures) if tells_labels(traits) else None
    if gaps is None:
        return None
    exact = np.array(gaps)
    rounded = exact.astype(np.float32)
    return np.where(rounded > exact, np.nextafter(rounded, np.float32(0)), rounded)


def tells_labels(traits: Traits) -> bool:
    """Tell whether rows have one label each, of two or more."""
    return traits.task == "single_label" and len(traits.labels) > 1


def _by_gap(gaps: tuple[float, ...]) -> Glance:
    def stays(logits: list[float], exit_index: int, columns: RuleState) -> bool:
        if len(logits) == 2:
            one, other = logits
            return abs(one - other) < gaps[exit_index]
        second, first = sorted(logits)[-2:]
        return first - second < gaps[exit_index]

    return stays


def count_on(logits: list[float], exit_index: int, columns: RuleState) -> bool:
    """Count on for patience, a `Glance`; what is not finite is left to the judge."""
    label, streak = logits.index(max(logits)), 0
    if label == columns.label[0]:
        streak = int(columns.streak[0]) + 1
    if streak >= columns.patience[0] or exit_index >= columns.last[0]:
        return False
    if not math.isfinite(sum(logits)):
        return False
    columns.label[0], columns.streak[0] = label, streak
    return True
