"""One rule in terms of one model's exit indices, labels and task."""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from serve.criteria.carry import (
    BEFORE,
    BEST,
    BEST_EXIT,
    BEST_LOGITS,
    ENSEMBLE,
    FALLBACK,
    HEADS,
    NO_ENSEMBLE,
    OF_ALL,
    OF_LABEL,
    OF_RUN,
    QUANTILE,
    SCALE,
    SHARE,
    THRESHOLDS,
    TOTAL,
    VALUE,
    VOTES,
    WEIGHTS,
    Carry,
)
from serve.rules import (
    ClassesRule,
    ConfidenceRule,
    ConfidentPatienceRule,
    EntropyRule,
    ExitRule,
    LayerRule,
    LearnedRule,
    MarginRule,
    NormalizedEntropyRule,
    PartwiseRule,
    PatienceRule,
    Rule,
    VotingRule,
)
from serve.rules.traits import Traits

KINDS: tuple[type[Rule], ...] = (
    EntropyRule,
    ConfidenceRule,
    PatienceRule,
    LayerRule,
    NormalizedEntropyRule,
    MarginRule,
    ConfidentPatienceRule,
    VotingRule,
    LearnedRule,
    ClassesRule,
)
NEVER = len(KINDS)

_ENSEMBLES = {"none": NO_ENSEMBLE, "run": OF_RUN, "all": OF_ALL}


class Compiled(NamedTuple):
    """What a fresh row with this rule has in each column of `RuleState`."""

    kind: int
    threshold: float
    patience: int
    first: int
    last: int
    carry: Carry


@lru_cache(maxsize=64)
def compiler(traits: Traits) -> Callable[[ExitRule], Compiled]:
    """Return what compiles rules for a model; it remembers the rules it has seen."""

    @lru_cache(maxsize=1024)
    def compile_rule(rule: ExitRule) -> Compiled:
        return _compile(rule, traits)

    return compile_rule


def _compile(rule: ExitRule, traits: Traits) -> Compiled:
    exits = traits.exits
    inside = [
        index
        for index, layer in enumerate(exits)
        if (rule.min_layer or 1) <= layer <= (rule.max_layer or exits[-1])
    ]
    first, last = inside[0], inside[-1]
    if isinstance(rule, LayerRule):
        first = last = exits.index(rule.layer)
    kind = KINDS.index(type(rule)) if type(rule) in KINDS else NEVER
    threshold, patience = getattr(rule, "threshold", 0.0), getattr(rule, "patience", 0)
    carry = _carry(rule, traits)
    if isinstance(rule, PatienceRule):
        threshold = rule.tolerance or 0.0
    elif isinstance(threshold, tuple):
        carry[THRESHOLDS], threshold = np.array(threshold, np.float32), 0.0
    return Compiled(kind, threshold, patience, first, last, carry)


def _carry(rule: ExitRule, traits: Traits) -> Carry:
    match rule:
        case PatienceRule():
            carry = _of_patience(traits)
        case ConfidenceRule(fallback="most_confident"):
            carry = _of_most_confident(traits)
        case ConfidentPatienceRule() if rule.ensemble != "none":
            carry = _of_ensemble(rule, traits)
        case VotingRule():
            carry = _of_voting(rule, traits)
        case ClassesRule():
            carry = _of_classes(rule, traits)
        case _:
            carry = {}
    if isinstance(rule, PartwiseRule) and traits.task != "single_label":
        carry[QUANTILE] = _quantile(rule, traits)
    return carry


def _quantile(rule: PartwiseRule, traits: Traits) -> NDArray[np.float64]:
    reduce = rule.reduce or ("mean" if traits.task == "token" else "max")
    return np.array({"mean": math.nan, "max": 1.0}.get(reduce, rule.quantile), np.float64)


def _of_patience(traits: Traits) -> Carry:
    if traits.task == "regression":
        return {VALUE: np.array(np.nan, np.float32)}
    if traits.task == "single_label":
        return {}
    parts = 0 if traits.task == "token" else len(traits.labels)
    return {BEFORE: np.full(parts, -1, np.int32)}


def _of_most_confident(traits: Traits) -> Carry:
    return {
        FALLBACK: np.array(True),
        BEST: np.array(-np.inf, np.float32),
        BEST_EXIT: np.array(-1, np.int64),
        BEST_LOGITS: np.full(_logits_of_row(traits), np.nan, np.float32),
    }


def _of_ensemble(rule: ConfidentPatienceRule, traits: Traits) -> Carry:
    return {
        ENSEMBLE: np.array(_ENSEMBLES[rule.ensemble], np.int8),
        TOTAL: np.zeros(_logits_of_row(traits), np.float32),
        HEADS: np.array(0, np.int32),
    }


def _of_voting(rule: VotingRule, traits: Traits) -> Carry:
    # Votes that are counted are a share of 1, whatever the exit.
    so_far = np.arange(1, len(traits.exits) + 1, dtype=np.float64)
    return {
        SHARE: np.array(rule.votes if rule.share is None else rule.share, np.float64),
        SCALE: so_far ** (rule.exponent or 0.0),
        WEIGHTS: np.array(rule.weights or np.ones_like(so_far), np.float64),
        VOTES: np.zeros(len(traits.labels), np.float64),
    }


def _of_classes(rule: ClassesRule, traits: Traits) -> Carry:
    thresholds = [rule.thresholds.get(label, np.inf) for label in traits.labels]
    return {OF_LABEL: np.array(thresholds, np.float32)}


def _logits_of_row(traits: Traits) -> tuple[int, ...]:
    """Return the shape of a row's logits; tokens come with the first exit."""
    return (0, len(traits.labels)) if traits.task == "token" else (len(traits.labels),)
