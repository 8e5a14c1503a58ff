"""A row that is alone goes from exit to exit without a batch, and notices when that must end."""

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from serve.engine.cost_model import GUESS, SegmentCost
from serve.engine.row import Answer
from serve.engine.runner import Hidden, Ids, StepOutput
from serve.errors import Cancelled, DeadlineExceeded, ModelFailure
from serve.rules import ConfidenceRule, EntropyRule, ExitRule, LayerRule, NeverRule, PatienceRule
from serve.rules.criterion import Reason
from tests.serve.support.core_bench import CoreBench
from tests.serve.support.fake_runner import fake_row
from tests.serve.support.lost_device import ILLEGAL_ADDRESS

EXITS = (1, 2, 3, 4, 5, 6)
UNSURE = (0.0, 0.1)
SURE = (0.0, 9.0)


def bench_of(
    sure_from: int = 9,
    between: Callable[[int], bool] = lambda runs: False,
    cost: SegmentCost = GUESS,
) -> CoreBench:
    """Return an engine core without calls between segments unless the test says so."""

    def heads(key: int, index: int) -> tuple[float, float]:
        return SURE if index >= sure_from else UNSURE

    return CoreBench(heads, len(EXITS), between=between, cost=cost)


@pytest.mark.parametrize(
    ("rule", "index", "reason"),
    [
        (EntropyRule(threshold=0.3), 3, Reason.CONFIDENT),
        (EntropyRule(threshold=0), 5, Reason.FINAL),
        (LayerRule(layer=5), 4, Reason.LAYER),
        (NeverRule(), 5, Reason.FINAL),
        (NeverRule(max_layer=3), 2, Reason.MAX_LAYER),
    ],
)
def test_lone_row_is_answered_in_one_turn(rule: ExitRule, index: int, reason: Reason) -> None:
    bench = bench_of(sure_from=3)
    ((_, answer),) = bench.step(fake_row(1, rule=rule))
    assert isinstance(answer, Answer)
    assert (answer.exit_index, answer.reason) == (index, reason)
    assert answer.logits.tolist() == np.array(SURE if index >= 3 else UNSURE, np.float32).tolist()
    assert not bench.core


def test_every_run_is_written_down_once_the_answer_is_out() -> None:
    bench = bench_of()
    bench.step(fake_row(1, 7, EntropyRule(threshold=0.3)))
    assert bench.seen == []
    bench.core.flush_costs()
    assert [(s.exit_index, s.num_rows, s.num_tokens) for s in bench.seen] == [
        (index, 1, 7) for index in range(len(EXITS))
    ]


def test_row_waits_for_those_who_come() -> None:
    bench = bench_of(between=lambda runs: runs == 2)
    rule = EntropyRule(threshold=0.3)
    assert bench.step(fake_row(1, rule=rule)) == []
    assert [run.keys for run in bench.runner.runs] == [[1], [1]]
    outcomes = [*bench.step(fake_row(2, rule=rule)), *bench.step()]
    while bench.core:
        outcomes += bench.step()
    assert {outcome.row.tag for outcome in outcomes} == {1, 2}
    assert sum(run.keys.count(1) for run in bench.runner.runs) == len(EXITS)


@pytest.mark.parametrize(("waited_s", "held_from_s"), [(0.0, 5.0), (0.004, 5.0), (9.0, 14.0)])
def test_row_that_waits_for_others_may_be_held_no_longer_than_any(
    waited_s: float, held_from_s: float
) -> None:
    bench = bench_of(between=lambda runs: runs == 2, cost=SegmentCost(fixed_s=0.001))
    row = fake_row(1, rule=EntropyRule(threshold=0.3), admitted_s=5.0)
    bench.core.add([row])
    bench.now_s = 5.0 + waited_s
    assert bench.core.step() == []
    (group,) = bench.core._scheduler._groups
    assert group.held_from_s == held_from_s, "5 times 6 ms since it came, or since it started"
    assert row.started_s == bench.now_s


def test_hidden_states_of_those_who_have_left_are_given_back() -> None:
    """They are most of a large batch's memory."""
    bench = bench_of()
    run, held = bench.runner._step, list[weakref.ref[Hidden]]()

    class Kept(np.ndarray):  # which can be referred to weakly
        pass

    def note(index: int, until: int, ids: Ids, mask: Ids) -> StepOutput:
        step = run(index, until, np.asarray(ids), mask)
        assert [ref() is None for ref in held[:-1]] == [True] * (index - 1), "but those it reads"
        hidden = step.hidden.copy().view(Kept)
        held.append(weakref.ref(hidden))
        return step._replace(hidden=hidden)

    bench.runner._step = note  # type: ignore[method-assign]
    others = [fake_row(key, 3, LayerRule(layer=2)) for key in range(2, 9)]
    first = fake_row(1, 3, EntropyRule(threshold=0.3))
    outcomes = [*bench.step(first, *others), *bench.step(), *bench.step()]
    assert [isinstance(outcome.result, Answer) for outcome in outcomes] == [True] * 8
    assert len(held) == len(EXITS)


@pytest.mark.parametrize("others", [0, 1])
@pytest.mark.parametrize("waited_for", [False, True])
@pytest.mark.parametrize("gone", [{"cancelled": True}, {"deadline_s": 0.001}])
def test_row_that_nobody_waits_for_does_not_start(
    gone: dict[str, Any], waited_for: bool, others: int
) -> None:
    bench = bench_of(between=lambda runs: waited_for)
    bench.now_s = 0.001  # the last look at all who wait was less than 5 ms ago
    rows = [fake_row(1, **gone), *(fake_row(2 + key) for key in range(others))]
    outcomes = bench.step(*rows)
    while bench.core:
        outcomes += bench.step()
    results = {row.tag: result for row, result in outcomes}
    assert isinstance(results.pop(1), Cancelled if "cancelled" in gone else DeadlineExceeded)
    assert [isinstance(result, Answer) for result in results.values()] == [True] * others
    assert not any(1 in run.keys for run in bench.runner.runs)


@pytest.mark.parametrize(
    ("rule", "fields"),
    [
        (EntropyRule(threshold=0.3), {"exit_trace": []}),
        (PatienceRule(patience=2), {}),
        (ConfidenceRule(threshold=0.9, fallback="most_confident"), {}),
    ],
)
def test_a_row_that_needs_more_than_one_exits_logits_goes_as_a_batch(
    rule: ExitRule, fields: dict[str, Any]
) -> None:
    bench = bench_of()
    assert bench.step(fake_row(1, rule=rule, **fields)) == []
    assert len(bench.runner.runs) == 1


def test_device_that_is_lost_on_the_way_ends_the_engine() -> None:
    def heads(key: int, index: int) -> tuple[float, float]:
        raise RuntimeError(ILLEGAL_ADDRESS)

    bench = bench_of()
    bench.runner._heads = heads
    with pytest.raises(RuntimeError, match="CUDA failure 700"):
        bench.step(fake_row(1))


def test_segment_that_fails_on_the_way_gives_the_row_its_error() -> None:
    bench = bench_of()
    step = bench.runner.advance

    def break_down(index: int, *arguments: object) -> object:
        if index == 3:
            raise RuntimeError("broken")
        return step(index, *arguments)  # type: ignore[arg-type]

    bench.runner.advance = break_down  # type: ignore[method-assign, assignment]
    ((_, error),) = bench.step(fake_row(1, rule=EntropyRule(threshold=0.3)))
    assert isinstance(error, ModelFailure)
    assert not bench.core
