"""Two logits may tell that a row stays: only where the rule's own arithmetic says so too."""

import math
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from serve.rules import (
    ConfidenceRule,
    EntropyRule,
    ExitRule,
    MarginRule,
    NeverRule,
    NormalizedEntropyRule,
    PatienceRule,
    compile_rule,
)
from serve.rules.criterion import HeadOutput, Reason
from serve.rules.judge import RuleState, judge
from serve.rules.traits import Traits
from tests.serve.support.rule_strategies import EXITS, rules_of, traits_of

TEMPERATURES = (1.0, 1.5, 0.7, 1.0, 2.0)
STRANGE = (math.nan, math.inf, -math.inf, 1e30, 0.0)
THOROUGH = settings(
    max_examples=max(500, settings().max_examples),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TWO = Traits(EXITS, ("a", "b"))


def some_logits(random: Random, num_labels: int) -> list[float]:
    scale = random.choice([0.1, 1.0, 3.0, 10.0, 30.0])
    logits = [random.gauss(0, scale) for _ in range(num_labels)]
    if random.random() < 0.1:
        logits[random.randrange(num_labels)] = random.choice(STRANGE)
    return np.array(logits, np.float32).tolist()


@THOROUGH
@given(
    rule=rules_of("single_label"), seed=st.integers(0, 2**32), num_labels=st.sampled_from([2, 3])
)
def test_a_row_within_the_gap_stays_by_its_rule(rule: ExitRule, seed: int, num_labels: int) -> None:
    traits, random = traits_of("single_label"), Random(seed)
    names_labels = rule.rule in ("classes", "decision")
    if num_labels == 2 and not names_labels:
        traits = replace(traits, labels=("a", "b"))
    compiled = compile_rule(rule, traits, TEMPERATURES)
    if compiled.stay_gaps is None:
        return
    for index in range(len(EXITS)):
        logits = some_logits(random, len(traits.labels))
        head = HeadOutput(np.array([logits], np.float32), np.zeros(1, np.float32))
        with np.errstate(all="ignore"):
            state = RuleState.of([compiled])
            decision = judge(state, head, index, len(EXITS), TEMPERATURES[index])
        second, first = sorted(logits)[-2:]
        if first - second < compiled.stay_gaps[index]:
            assert decision.reasons == Reason.STAYS


@pytest.mark.parametrize(
    ("rule", "stays", "may_leave"),
    [
        (EntropyRule(threshold=0.1), 3.0, 5.0),
        (EntropyRule(threshold=(0.1,) * 4 + (0.3,)), 3.0, 5.0),
        (NormalizedEntropyRule(threshold=0.1), 3.0, 6.0),
        (ConfidenceRule(threshold=0.9), 2.1, 2.3),
        (MarginRule(threshold=0.5), 1.0, 1.2),
    ],
)
def test_the_gap_is_where_two_labels_reach_the_threshold(
    rule: ExitRule, stays: float, may_leave: float
) -> None:
    gaps = compile_rule(rule, TWO).stay_gaps
    assert gaps is not None
    assert stays < gaps[0] < may_leave
    assert gaps[-1] < 0, "every row leaves at the last exit"


@pytest.mark.parametrize(
    ("rule", "traits"),
    [
        (PatienceRule(patience=2), TWO),
        (ConfidenceRule(threshold=0.9, fallback="most_confident"), TWO),
        (EntropyRule(threshold=0.1), traits_of("token")),
        (NeverRule(), traits_of("multi_label")),
        (NeverRule(), traits_of("regression")),
    ],
)
def test_other_rules_and_tasks_have_no_gaps(rule: ExitRule, traits: Traits) -> None:
    assert compile_rule(rule, traits).stay_gaps is None
