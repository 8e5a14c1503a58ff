"""A glance at a lone row says that it stays only where the judge says so, and spares the judge."""

import math
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from serve.criteria.gaps import least_gaps
from serve.criteria.glance import gaps_at, glance_at
from serve.criteria.judge import HeadOutput, Reason, judge
from serve.criteria.rule_state import RuleState
from serve.engine.runner import LEAVES
from serve.rules import (
    ConfidenceRule,
    EntropyRule,
    ExitRule,
    LayerRule,
    MarginRule,
    NeverRule,
    NormalizedEntropyRule,
    PatienceRule,
)
from serve.rules.traits import Task, Traits
from tests.serve.support.rule_strategies import EXITS, rules_of, traits_of

TEMPERATURES = (1.0, 1.5, 0.7, 1.0, 2.0)
STRANGE = (math.nan, math.inf, -math.inf, 1e30, 0.0)
THOROUGH = settings(
    max_examples=max(500, settings().max_examples),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


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
def test_row_seen_at_a_glance_fares_as_one_that_is_judged_at_every_exit(
    rule: ExitRule, seed: int, num_labels: int
) -> None:
    traits, random = traits_of("single_label"), Random(seed)
    if num_labels == 2 and not hasattr(rule, "thresholds"):
        traits = replace(traits, labels=("a", "b"))
    glance = glance_at(rule, traits, TEMPERATURES)
    glanced, every = RuleState.of([rule], traits), RuleState.of([rule], traits)
    for index in range(len(EXITS)):
        logits = some_logits(random, len(traits.labels))
        said = HeadOutput(np.array([logits], np.float32), np.zeros(1, np.float32))
        with np.errstate(all="ignore"):
            wanted = judge(every, said, index, len(EXITS), TEMPERATURES[index])
            stays = glance is not None and glance(logits, index, glanced)
            if not stays:
                found = judge(glanced, said, index, len(EXITS), TEMPERATURES[index])
                assert found.reasons == wanted.reasons
                np.testing.assert_array_equal(found.signals, wanted.signals)
        if stays:
            assert wanted.reasons == Reason.STAYS
        assert (glanced.label, glanced.streak) == (every.label, every.streak)
        if wanted.reasons != Reason.STAYS:
            break


@pytest.mark.parametrize(
    ("rule", "far", "near"),
    [
        (EntropyRule(threshold=0.1), [0.0, 3.0], [0.0, 5.0]),
        (EntropyRule(threshold=(0.1,) * 4 + (0.3,)), [0.0, 3.0], [0.0, 5.0]),
        (NormalizedEntropyRule(threshold=0.1), [0.0, 3.0], [0.0, 6.0]),
        (ConfidenceRule(threshold=0.9), [0.0, 2.1], [0.0, 2.3]),
        (MarginRule(threshold=0.5), [1.0, 0.0], [0.0, 1.2]),
    ],
)
def test_glance_keeps_rows_whose_logits_are_too_near_to_each_other(
    rule: ExitRule, far: list[float], near: list[float]
) -> None:
    traits = Traits(EXITS, ("a", "b"), "single_label")
    glance = glance_at(rule, traits, (1.0,) * len(EXITS))
    columns = RuleState.of([rule], traits)
    assert glance is not None
    assert glance(far, 0, columns)
    assert not glance(near, 0, columns)
    assert not glance(far, len(EXITS) - 1, columns), "the last exit is the judge's"


def test_third_label_brings_the_two_largest_no_further_apart() -> None:
    traits = Traits(EXITS, ("a", "b", "c"), "single_label")
    glance = glance_at(ConfidenceRule(threshold=0.9), traits, (1.0,) * len(EXITS))
    assert glance is not None
    assert glance([-9.0, 2.1, 0.0], 0, RuleState.of([NeverRule()], traits))


def test_confidence_is_compared_at_the_exits_temperature() -> None:
    traits = Traits(EXITS, ("a", "b"), "single_label")
    glance = glance_at(ConfidenceRule(threshold=0.9), traits, (1.0, 2.0, 1.0, 1.0, 1.0))
    columns = RuleState.of([NeverRule()], traits)
    assert glance is not None
    assert [glance([0.0, 3.0], index, columns) for index in range(3)] == [False, True, False]


def test_fixed_layers_are_known_beforehand() -> None:
    traits = Traits(EXITS, ("a", "b"), "single_label")
    for rule, last in ((LayerRule(layer=5), 2), (NeverRule(), 4), (NeverRule(max_layer=6), 3)):
        glance = glance_at(rule, traits, (1.0,) * len(EXITS))
        columns = RuleState.of([rule], traits)
        assert glance is not None
        assert [glance([0.0, 9.0], index, columns) for index in range(last + 1)] == [
            *[True] * last,
            False,
        ]


def test_patience_counts_on_at_a_glance() -> None:
    traits = Traits(EXITS, ("a", "b"), "single_label")
    glance = glance_at(PatienceRule(patience=2), traits, (1.0,) * len(EXITS))
    columns = RuleState.of([PatienceRule(patience=2)], traits)
    assert glance is not None
    stays = [glance(logits, 0, columns) for logits in ([0.0, 1.0], [0.0, 2.0], [0.0, 1.0])]
    assert stays == [True, True, False]
    assert columns.streak == 1, "what may leave is left to the judge, untouched"


@settings(deadline=None)
@given(
    rule=rules_of("single_label"),
    temperatures=st.tuples(*[st.floats(0.05, 20)] * len(EXITS)),
)
def test_gaps_in_float32_are_never_above_the_exact_ones_and_hardly_below(
    rule: ExitRule, temperatures: tuple[float, ...]
) -> None:
    traits = traits_of("single_label")
    exact, gaps = least_gaps(rule, traits, temperatures), gaps_at(rule, traits, temperatures)
    if exact is None or gaps is None:
        assert exact is None
        assert gaps is None
        return
    assert gaps.dtype == np.float32
    assert gaps.shape == (len(EXITS),)
    for gap, wanted in zip(gaps.tolist(), exact, strict=True):
        assert gap <= wanted <= np.nextafter(np.float32(gap), np.float32(np.inf))
    assert gaps[-1] == LEAVES


@pytest.mark.parametrize("task", ["multi_label", "token", "regression"])
def test_other_tasks_have_no_gaps(task: Task) -> None:
    for rule in (NeverRule(), LayerRule(layer=3)):
        assert gaps_at(rule, traits_of(task), TEMPERATURES) is None
        assert gaps_at(rule, traits_of("single_label"), TEMPERATURES) is not None


def test_glance_tells_nothing_of_rules_that_need_more_than_two_logits() -> None:
    traits = traits_of("token")
    assert glance_at(EntropyRule(threshold=0.1), traits, TEMPERATURES) is None
    traits = traits_of("single_label")
    fallback = ConfidenceRule(threshold=0.9, fallback="most_confident")
    assert glance_at(fallback, traits, TEMPERATURES) is None
