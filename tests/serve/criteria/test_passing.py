"""What a row that is alone may pass, and what its rule is told of it afterwards."""

import math
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from serve.criteria.glance import gaps_at
from serve.criteria.judge import HeadOutput, Reason, judge
from serve.criteria.passing import come_by, gaps_from
from serve.criteria.rule_state import RuleState
from serve.engine.runner import ASKED, Gaps
from serve.rules import EntropyRule, ExitRule, NeverRule, PatienceRule
from serve.rules.traits import Task
from tests.serve.criteria.test_glance import TEMPERATURES, THOROUGH, some_logits
from tests.serve.support.rule_strategies import EXITS, rules_of, traits_of

TRAITS = traits_of("single_label")
Logits = NDArray[np.float32]  # (exits, 1, labels)


def stays(columns: RuleState, logits: Logits, index: int) -> bool:
    """Judge a row after an exit."""
    with np.errstate(all="ignore"):
        said = HeadOutput(logits[index], None)
        verdict = judge(columns, said, index, len(EXITS), TEMPERATURES[index])
    return bool(verdict.reasons[0] == Reason.STAYS)


def passed_from(depth: int, logits: Logits, gaps: Gaps) -> list[int]:
    """Return the exits that a row passes, be it unasked; what is no number may be near."""
    passed: list[int] = []
    ordered = np.sort(logits[:, 0], axis=1)
    with np.errstate(all="ignore"):
        ends = (ordered[:, -1] - ordered[:, -2] >= gaps) & (gaps < math.inf)
    ends |= gaps <= 0
    for index in range(depth, len(EXITS)):
        if ends[index]:
            break
        passed.append(index)
    return passed


@THOROUGH
@given(
    rule=rules_of("single_label").filter(lambda rule: rule.rule != "learned"),
    seed=st.integers(0, 2**32),
    depth=st.integers(0, len(EXITS) - 1),
)
def test_rows_that_pass_would_have_stayed_and_their_rules_know_it(
    rule: ExitRule, seed: int, depth: int
) -> None:
    random = Random(seed)
    logits = np.array([[some_logits(random, 3)] for _ in EXITS], np.float32)
    told, judged = RuleState.of([rule], TRAITS), RuleState.of([rule], TRAITS)
    for index in range(depth):
        stays(told, logits, index)
        if not stays(judged, logits, index):
            return
    gaps = gaps_from(depth, rule, told, TRAITS, TEMPERATURES)
    if gaps is None:
        return
    passed = passed_from(depth, logits, gaps)
    # Whoever passes an exit unasked has nothing to count.
    if not any(gaps[passed] == math.inf):
        with np.errstate(all="ignore"):
            come_by(told, logits[passed], depth, TEMPERATURES)
    assert all([stays(judged, logits, index) for index in passed])
    assert (told.label, told.streak) == (judged.label, judged.streak)


@pytest.mark.parametrize(
    ("rule", "num_passed"),
    [
        (PatienceRule(patience=1), 1),
        (PatienceRule(patience=3), 3),
        (PatienceRule(patience=9), 4),
        (PatienceRule(patience=1, min_layer=6), 3),
        (PatienceRule(patience=9, max_layer=5), 2),
    ],
)
def test_patience_passes_the_exits_at_which_it_cannot_end(
    rule: PatienceRule, num_passed: int
) -> None:
    columns = RuleState.of([rule], TRAITS)
    gaps = gaps_from(0, rule, columns, TRAITS, TEMPERATURES)
    assert gaps is not None
    assert gaps.dtype == np.float32
    assert gaps.tolist() == [ASKED] * num_passed + [0] * (len(EXITS) - num_passed)


@pytest.mark.parametrize(("streak", "num_passed"), [(0, 3), (1, 2)])
def test_what_has_agreed_already_is_not_waited_for_again(streak: int, num_passed: int) -> None:
    rule = PatienceRule(patience=3)
    columns = RuleState.of([rule], TRAITS)
    columns.label[0], columns.streak[0] = 1, streak
    gaps = gaps_from(1, rule, columns, TRAITS, TEMPERATURES)
    assert gaps is not None
    assert gaps.tolist() == [ASKED] * num_passed + [0] * (len(EXITS) - num_passed)


def test_patience_that_may_end_at_the_next_exit_is_looked_at_there() -> None:
    rule = PatienceRule(patience=3)
    columns = RuleState.of([rule], TRAITS)
    columns.label[0], columns.streak[0] = 1, 2
    assert gaps_from(1, rule, columns, TRAITS, TEMPERATURES) is None


def test_other_rules_have_the_gaps_of_a_glance() -> None:
    rule = EntropyRule(threshold=0.3)
    gaps = gaps_from(2, rule, RuleState.of([rule], TRAITS), TRAITS, TEMPERATURES)
    assert gaps is gaps_at(rule, TRAITS, TEMPERATURES)


def test_exits_at_which_none_of_several_rows_may_leave_are_not_even_asked() -> None:
    rules: list[ExitRule] = [EntropyRule(threshold=0.3, min_layer=6), NeverRule()]
    columns = RuleState.of(rules, TRAITS)
    gaps = gaps_from(0, rules[0], columns, TRAITS, TEMPERATURES)
    assert gaps is not None
    assert gaps.dtype == np.float32
    assert gaps.tolist() == [math.inf] * 3 + [0] * (len(EXITS) - 3)


@pytest.mark.parametrize("task", ["multi_label", "token", "regression"])
def test_patience_of_other_tasks_is_looked_at_everywhere(task: str) -> None:
    traits = traits_of(task)  # type: ignore[arg-type]
    tolerance = 0.5 if task == "regression" else None
    rule = PatienceRule(patience=3, tolerance=tolerance)
    assert gaps_from(0, rule, RuleState.of([rule], traits), traits, TEMPERATURES) is None


@THOROUGH
@given(
    task=st.sampled_from(["single_label", "multi_label", "token", "regression"]),
    data=st.data(),
    seed=st.integers(0, 2**32),
)
def test_rows_together_that_skip_what_nobody_asks_fare_as_if_they_had_been_judged(
    task: Task, data: st.DataObject, seed: int
) -> None:
    random, traits = Random(seed), traits_of(task)
    rules = data.draw(
        st.lists(rules_of(task).filter(lambda rule: rule.rule != "learned"), min_size=2, max_size=3)
    )
    shape = (len(rules), 2) if task == "token" else (len(rules),)
    some = [some_logits(random, len(traits.labels)) for _ in range(len(EXITS) * math.prod(shape))]
    logits = np.array(some, np.float32).reshape(len(EXITS), *shape, -1)
    counted = np.ones(shape, np.bool_) if task == "token" else None
    skipping, judged = RuleState.of(rules, traits), RuleState.of(rules, traits)
    index = 0
    while index < len(EXITS):
        gaps = gaps_from(index, rules[0], skipping, traits, TEMPERATURES)
        asked = index if gaps is None else index + gaps[index:].tolist().index(0)
        for passed in range(index, asked):
            assert not verdict_at(judged, logits, passed, counted).any()
        reasons = verdict_at(judged, logits, asked, counted)
        np.testing.assert_array_equal(verdict_at(skipping, logits, asked, counted), reasons)
        if reasons.any():
            return
        index = asked + 1


def verdict_at(
    columns: RuleState, logits: Logits, index: int, counted: NDArray[np.bool_] | None
) -> NDArray[np.int8]:
    with np.errstate(all="ignore"):
        said = HeadOutput(logits[index], None, counted)
        return judge(columns, said, index, len(EXITS), TEMPERATURES[index]).reasons


@pytest.mark.parametrize("task", ["multi_label", "token", "regression"])
@pytest.mark.parametrize("num_rows", [1, 2])
def test_rows_of_any_task_pass_what_their_rules_do_not_ask(task: Task, num_rows: int) -> None:
    traits, rule = traits_of(task), NeverRule()
    columns = RuleState.of([rule] * num_rows, traits)
    gaps = gaps_from(0, rule, columns, traits, TEMPERATURES)
    assert gaps is not None
    assert gaps.tolist() == [math.inf] * (len(EXITS) - 1) + [0]
