"""A row that goes alone is judged as in a batch; who cannot go alone does not."""

import math
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import serve.engine.fast_path
from serve.criteria.carry import THRESHOLDS
from serve.criteria.judge import HeadOutput, Reason, judge, judge_alone, unheard_reasons
from serve.criteria.rule_state import RuleState
from serve.engine.batch import Batch
from serve.engine.cost_model import CostModel
from serve.engine.cost_recorder import CostRecorder
from serve.engine.executor import ModelShape
from serve.engine.fast_path import FastPath
from serve.engine.row import Answer, Outcome
from serve.engine.runner import AnyRunner
from serve.rules import (
    ConfidenceRule,
    EntropyRule,
    ExitRule,
    LayerRule,
    NeverRule,
    PatienceRule,
    VotingRule,
)
from serve.rules.traits import Task, Traits
from tests.serve.criteria.test_glance import TEMPERATURES, THOROUGH, some_logits
from tests.serve.support.fake_runner import FakeRunner, FakeSharedRunner, fake_row
from tests.serve.support.rule_strategies import EXITS, rules_of, traits_of
from tests.support.traits import two_labels


@THOROUGH
@given(
    rule=rules_of("single_label"), seed=st.integers(0, 2**32), num_labels=st.sampled_from([2, 3])
)
def test_row_that_is_alone_is_judged_as_a_batch_of_one(
    rule: ExitRule, seed: int, num_labels: int
) -> None:
    traits, random = traits_of("single_label"), Random(seed)
    if num_labels == 2 and not hasattr(rule, "thresholds"):
        traits = replace(traits, labels=("a", "b"))
    alone, batch = RuleState.of([rule], traits), RuleState.of([rule], traits)
    assume(alone.carry.keys() <= {THRESHOLDS})
    unheard = unheard_reasons(alone, len(EXITS))
    assert unheard.count(None) == (0 if isinstance(rule, LayerRule | NeverRule) else len(EXITS))
    for index in range(len(EXITS)):
        error = random.choice([0.0, 0.4, 1.0, math.nan])
        logits = np.array([some_logits(random, len(traits.labels))], np.float32)
        said = HeadOutput(logits, np.array([error], np.float32))
        with np.errstate(all="ignore"):
            wanted = judge(batch, said, index, len(EXITS), TEMPERATURES[index])
            found = judge_alone(alone, said, index, len(EXITS), TEMPERATURES[index])
        assert wanted.given is None
        assert repr(found) == repr((Reason(int(wanted.reasons[0])), wanted.signals.tolist()[0]))
        assert (alone.label, alone.streak) == (batch.label, batch.streak)
        assert unheard[index] in (None, found[0])


def lone(
    traits: Traits | None = None, runner: AnyRunner | None = None, should_yield: bool = False
) -> FastPath:
    traits = traits or two_labels((1, 2, 3, 4))
    runner = runner or FakeRunner(4, lambda key, index: (0.0, 9.0))
    shape, costs = ModelShape(traits, (1.0,) * 4), CostModel(4)
    books = CostRecorder(costs, lambda stats: None)
    return FastPath(runner, shape, costs, books, lambda: 0.0, lambda: should_yield)


def answer_of(end: Outcome | Batch) -> Answer:
    assert isinstance(end, Outcome)
    assert isinstance(end.result, Answer)
    return end.result


def test_rows_go_alone_that_leave_with_what_their_exit_says() -> None:
    alone = lone()
    assert alone.takes(fake_row(1, rule=EntropyRule(threshold=(0.1, 0.2, 0.3, 0.4))))
    assert not alone.takes(fake_row(1, rule=EntropyRule(threshold=0.1), trail=[]))
    most_confident = ConfidenceRule(threshold=0.9, fallback="most_confident")
    assert not alone.takes(fake_row(1, rule=most_confident))
    assert not alone.takes(fake_row(1, rule=VotingRule(votes=2)))


@pytest.mark.parametrize("task", ["multi_label", "regression", "token"])
def test_only_single_labels_go_alone(task: Task) -> None:
    labels = ("value",) if task == "regression" else ("a", "b")
    alone = lone(Traits((1, 2, 3, 4), labels, task))
    assert not alone.takes(fake_row(1, rule=LayerRule(layer=2)))


def test_layers_that_are_shared_are_not_gone_through_alone() -> None:
    runner = FakeSharedRunner((1, 2, 3, 4), lambda key, index: (0.0, 9.0))
    assert not lone(runner=runner).takes(fake_row(1, rule=LayerRule(layer=2)))


def test_rows_of_a_rule_that_counts_do_not_count_on_where_the_last_one_left() -> None:
    alone, rule = lone(), PatienceRule(patience=2)
    ends = [alone.start(fake_row(key, rule=rule, admitted_s=0.0), 0.0) for key in (1, 2, 3)]
    assert [answer_of(end).exit_index for end in ends] == [2, 2, 2]


@pytest.mark.parametrize("rule", [PatienceRule(patience=3), EntropyRule(threshold=0)])
def test_batch_that_comes_of_it_has_columns_of_its_own(rule: ExitRule) -> None:
    disturbed, alone = lone(should_yield=True), lone()
    batches = [disturbed.start(fake_row(key, rule=rule, admitted_s=0.0), 0.0) for key in (1, 2)]
    assert all(isinstance(batch, Batch) and batch.depth == 1 for batch in batches)
    first, second = (batch for batch in batches if isinstance(batch, Batch))
    second.columns.streak[:] = second.columns.label[:] = 7
    assert (first.columns.streak[0], first.columns.label[0]) != (7, 7)
    fresh = alone.start(fake_row(3, rule=rule, admitted_s=0.0), 0.0)
    assert answer_of(alone.resume(first))[1:4] == answer_of(fresh)[1:4]


def test_way_of_a_rule_is_not_that_of_one_before_which_is_gone() -> None:
    """Ways are known by the rules' identities, which others get once nobody holds them."""
    alone = lone()
    for layer in [1, 2, 3] * 20:
        row = fake_row(1, rule=LayerRule(layer=layer), admitted_s=0.0)
        assert alone.takes(row)
        assert answer_of(alone.start(row, 0.0)).exit_index == layer - 1


def test_ways_are_forgotten_once_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve.engine.fast_path, "_MOST_WAYS", 3)
    alone = lone()
    for _ in range(2):
        for percent in range(10):
            row = fake_row(1, rule=EntropyRule(threshold=percent / 100), admitted_s=0.0)
            assert alone.takes(row)
            assert answer_of(alone.start(row, 0.0)).exit_index == (3 if percent == 0 else 0)
    assert len(alone._ways) <= 3


def test_text_of_any_length_goes_alone() -> None:
    row = fake_row(1, 5000, LayerRule(layer=2), admitted_s=0.0)
    assert answer_of(lone().start(row, 0.0)).exit_index == 1
