"""What rows leave with, task by task, and the exits that they have passed."""

import math
from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest

from serve.engine.batch import Batch
from serve.engine.outputs import final_outputs, record_exit
from serve.engine.row import Answer
from serve.rules import ConfidenceRule, VotingRule
from serve.rules.criterion import HeadOutput, Reason
from serve.rules.traits import Task, Traits
from tests.serve.support.core_bench import CoreBench
from tests.serve.support.fake_runner import fake_row as row_for

fake_row = partial(row_for, exits=(1, 2, 3))
SURE, UNSURE, OTHER = (9.0, 0.0), (0.1, 0.0), (0.0, 2.0)
INF, NAN = math.inf, math.nan


def batch_of(task: Task, logits: Sequence[Sequence[object]], lengths: Sequence[int]) -> Batch:
    """Return a batch that has come by the first of two exits with these logits."""
    labels = ("a",) if task == "regression" else ("a", "b")
    batch = Batch([fake_row(key, length) for key, length in enumerate(lengths, 1)])
    batch.prepare(Traits((1, 2), labels, task))
    batch.depth, batch.head = 1, HeadOutput(np.array(logits, np.float32), None, batch.counted)
    return batch


def broken(task: Task, logits: Sequence[object]) -> bool:
    batch = batch_of(task, [logits], [1])  # type: ignore[list-item]
    (output,) = final_outputs(batch, np.array([0]), task)
    return bool(output.non_finite)


@pytest.mark.parametrize(
    ("task", "nothing", "something"),
    [
        ("single_label", [(NAN, 0), (INF, 0), (-INF, -INF)], [(-INF, 0), (3, -9)]),
        ("multi_label", [(NAN, 0), (INF, NAN)], [(INF, -INF), (-INF, -INF), (3, -9)]),
        ("regression", [(NAN,), (INF,), (-INF,)], [(0,), (-3e38,)]),
        ("token", [[(NAN, 0)], [(INF, 0)], [(-INF, -INF)]], [[(-INF, 0)], [(3, -9)]]),
    ],
)
def test_logits_say_nothing_where_the_task_can_make_nothing_of_them(
    task: Task, nothing: list[Sequence[object]], something: list[Sequence[object]]
) -> None:
    assert [broken(task, logits) for logits in nothing] == [True] * len(nothing)
    assert [broken(task, logits) for logits in something] == [False] * len(something)


def test_a_row_takes_its_own_tokens_and_padding_says_nothing_of_it() -> None:
    logits = np.arange(16.0).reshape(2, 4, 2)
    logits[0, 3] = NAN  # padding of the row of three tokens
    batch = batch_of("token", logits.tolist(), [3, 4])
    short, long = final_outputs(batch, np.array([0, 1]), "token")
    np.testing.assert_array_equal(short[0], logits[0, :3])
    np.testing.assert_array_equal(long[0], logits[1])
    assert short[1:] == long[1:] == (0, 0, -1, False)


def test_special_tokens_do_not_count_but_must_say_something() -> None:
    row = fake_row(1, 3)
    row.counted = np.array([False, True, False])
    other = fake_row(2, 2)
    batch = Batch([row, other])
    batch.prepare(Traits((1, 2), ("a", "b"), "token"))
    assert batch.counted is not None
    assert batch.counted.tolist() == [[False, True, False], [True, True, False]]
    logits = np.zeros((2, 3, 2), np.float32)
    logits[0, 0] = NAN
    batch.depth, batch.head = 1, HeadOutput(logits)
    assert [output.non_finite for output in final_outputs(batch, np.array([0, 1]), "token")] == [
        True,
        False,
    ]


def test_exit_traces_are_copies_and_only_for_those_who_want_them() -> None:
    batch = batch_of("token", np.zeros((2, 4, 2)).tolist(), [3, 4])
    batch.rows[0].exit_trace = []
    batch.signals = np.array([0.5, 0.25], np.float32)
    record_exit(batch)
    batch.head.logits[:] = 7
    assert batch.rows[1].exit_trace is None
    (passed,) = batch.rows[0].exit_trace
    assert (passed.exit_index, passed.signal) == (0, 0.5)
    np.testing.assert_array_equal(passed.logits, np.zeros((3, 2)))


def answers_of(bench: CoreBench) -> dict[int, Answer]:
    outcomes = bench.finish()
    assert all(isinstance(outcome.result, Answer) for outcome in outcomes)
    return {outcome.row.tag: outcome.result for outcome in outcomes}  # type: ignore[misc]


@pytest.mark.parametrize("joined", [False, True])
def test_a_late_row_leaves_with_the_answer_that_its_rule_gives_by_then(
    joined: bool,
) -> None:
    """Also where it comes by no exit any more between being joined by others and its deadline."""
    said = [OTHER, UNSURE, SURE]
    bench = CoreBench(lambda key, index: said[index], 3)
    rule = ConfidenceRule(threshold=0.999, fallback="most_confident")
    bench.add(fake_row(1, 5, rule, deadline_s=1.0), fake_row(2, 7))
    for step in range(2):
        if joined and step == 1:
            bench.add(fake_row(3, 9), fake_row(4, 2, VotingRule(votes=3)))
        assert bench.core.step() == []
    bench.now_s = 2.0
    answers = answers_of(bench)
    late = answers[1]
    assert (late.reason, late.exit_index, late.head_index) == (Reason.DEADLINE, 1, 0)
    assert late.logits.tolist() == list(OTHER)
    others = {2, 3, 4} if joined else {2}
    assert {tag for tag, answer in answers.items() if answer.reason is Reason.FINAL} == others
