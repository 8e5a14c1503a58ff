"""Rows pass exits in one call where they surely stay, and fare as if they had come by each."""

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest

from serve.criteria.judge import Reason
from serve.engine.core import EngineCore
from serve.engine.cost_model import CostModel, SegmentCost
from serve.engine.executor import ModelShape
from serve.engine.row import Answer, BatchStats, Outcome, Row
from serve.engine.scheduler import BatchLimits
from serve.engine.undisturbed import UNDISTURBED_S
from serve.errors import Cancelled, ModelFailure
from serve.rules import (
    ConfidenceRule,
    ConfidentPatienceRule,
    EntropyRule,
    ExitRule,
    LayerRule,
    NeverRule,
    PatienceRule,
    VotingRule,
)
from tests.serve.support.fake_runner import Heads, PassingFakeRunner, fake_row
from tests.support.traits import two_labels

EXITS = (1, 2, 3, 4, 5, 6)
UNSURE, SURE = (0.0, 0.1), (0.0, 9.0)


def nobody() -> bool:
    return False


class Bench:
    """An engine core over a runner that passes exits; segments cost `segment_s` each.

    Attributes:
        should_yield: whether somebody waits.
    """

    def __init__(
        self, heads: Heads | None = None, segment_s: float = 0, limits: BatchLimits | None = None
    ) -> None:
        self.now_s = 0.0
        self.should_yield: Callable[[], bool] = nobody
        self.seen: list[BatchStats] = []
        self.runner = PassingFakeRunner(len(EXITS), heads or (lambda key, index: UNSURE))
        costs = CostModel.of([SegmentCost(fixed_s=segment_s)] * len(EXITS))
        self.core = EngineCore(
            self.runner,
            ModelShape(two_labels(EXITS), (1.0,) * len(EXITS), costs=costs),
            limits or BatchLimits(),
            lambda: self.now_s,
            self.seen.append,
            self._should_yield,
        )

    def _should_yield(self) -> bool:
        return self.should_yield()

    def turn(self, *rows: Row) -> list[Outcome]:
        for row in rows:
            row.admitted_s = self.now_s
        self.core.add(list(rows))
        return self.core.turn()

    def answer(self, row: Row) -> Answer:
        """Return the row's answer, whatever turns it takes."""
        outcomes = self.turn(row)
        while self.core:
            outcomes += self.turn()
        ((_, answer),) = outcomes
        assert isinstance(answer, Answer)
        return answer

    @property
    def calls(self) -> list[tuple[int, int]]:
        """The first exit and how many, of each call."""
        return [(call.first, call.exits) for call in self.runner.calls]


def sure_from(exit_index: int) -> Heads:
    return lambda key, index: SURE if index >= exit_index else UNSURE


@pytest.mark.parametrize(
    ("rule", "index", "reason"),
    [
        (EntropyRule(threshold=0.3), 3, Reason.CONFIDENT),
        (EntropyRule(threshold=0.3, min_layer=5), 4, Reason.CONFIDENT),
        (EntropyRule(threshold=0.3, max_layer=2), 1, Reason.MAX_LAYER),
        (EntropyRule(threshold=0), 5, Reason.FINAL),
        (ConfidenceRule(threshold=0.9), 3, Reason.CONFIDENT),
        (LayerRule(layer=5), 4, Reason.LAYER),
        (LayerRule(layer=1), 0, Reason.LAYER),
        (NeverRule(), 5, Reason.FINAL),
        (NeverRule(max_layer=3), 2, Reason.MAX_LAYER),
        (PatienceRule(patience=4), 4, Reason.PATIENCE),
        (PatienceRule(patience=1, min_layer=5), 4, Reason.PATIENCE),
    ],
)
def test_lone_row_takes_one_call(rule: ExitRule, index: int, reason: Reason) -> None:
    bench = Bench(sure_from(3))
    answer = bench.answer(fake_row(1, rule=rule))
    assert (answer.exit_index, answer.reason) == (index, reason)
    assert answer.logits.tolist() == np.array(SURE if index >= 3 else UNSURE, np.float32).tolist()
    assert bench.calls == [(0, index + 1)]


def test_row_comes_back_where_it_may_leave_and_goes_on_if_it_does_not() -> None:
    # Further apart than is sure, not as far as it takes: the judge says it stays.
    near = math.log(0.9 / 0.1) - 1e-5
    bench = Bench(lambda key, index: (0.0, near if index == 2 else 0.1))
    answer = bench.answer(fake_row(1, rule=ConfidenceRule(threshold=0.9)))
    assert (answer.exit_index, answer.reason) == (5, Reason.FINAL)
    assert bench.calls == [(0, 3), (3, 3)]


@pytest.mark.parametrize(
    ("labels", "calls", "end"),
    [
        ((0, 0, 0, 0, 0, 0), [(0, 3)], (2, Reason.PATIENCE, 2)),
        ((0, 1, 0, 0, 0, 0), [(0, 3), (3, 2)], (4, Reason.PATIENCE, 2)),
        ((0, 1, 1, 0, 0, 0), [(0, 3), (3, 1), (4, 2)], (5, Reason.FINAL, 2)),
        ((0, 1, 0, 1, 0, 1), [(0, 3), (3, 2), (5, 1)], (5, Reason.FINAL, 0)),
    ],
)
def test_patience_comes_back_as_soon_as_it_may_end_and_no_sooner(
    labels: Sequence[int], calls: list[tuple[int, int]], end: tuple[int, Reason, float]
) -> None:
    bench = Bench(lambda key, index: SURE[:: 1 - 2 * labels[index]])
    answer = bench.answer(fake_row(1, rule=PatienceRule(patience=2)))
    assert (answer.exit_index, answer.reason, answer.signal) == end
    assert bench.calls == calls


def test_rule_whose_gaps_are_not_known_is_judged_after_every_segment() -> None:
    bench = Bench()
    bench.answer(fake_row(1, rule=VotingRule(votes=9)))
    assert [call.gaps for call in bench.runner.calls] == [None] * len(EXITS)


def test_row_whose_trail_is_wanted_comes_back_at_every_exit() -> None:
    bench = Bench()
    answer = bench.answer(fake_row(1, trail=[]))
    assert [call.gaps for call in bench.runner.calls] == [None] * len(EXITS)
    assert [passed.exit_index for passed in answer.trail] == list(range(len(EXITS)))


def test_nothing_is_passed_while_somebody_waits() -> None:
    bench = Bench()
    bench.should_yield = lambda: True
    for index in range(3):
        assert bench.turn(*([] if index else [fake_row(1)])) == []
        assert bench.calls[-1] == (index, 1)
        assert bench.runner.calls[-1].gaps is None
    bench.should_yield = nobody
    assert len(bench.turn()) == 1
    assert bench.calls[3:] == [(3, 3)]


def test_nothing_is_passed_while_others_are_in_flight() -> None:
    bench = Bench(limits=BatchLimits(max_rows=1))
    outcomes = bench.turn(fake_row(1, 3), fake_row(2, 9, LayerRule(layer=4)))
    while not outcomes:
        assert [(call.exits, call.gaps) for call in bench.runner.calls] == [(1, None)] * len(
            bench.calls
        )
        outcomes += bench.turn()
    assert len(bench.calls) >= 4
    while bench.core:
        outcomes += bench.turn()
    assert {outcome.row.tag for outcome in outcomes} == {1, 2}
    assert bench.runner.calls[-1].gaps is not None, "in the end, one row is alone"


def answers_of(bench: Bench, *rules: ExitRule) -> list[tuple[int, Reason]]:
    """Return how rows fare that run together."""
    outcomes = bench.turn(*[fake_row(key + 1, rule=rule) for key, rule in enumerate(rules)])
    while bench.core:
        outcomes += bench.turn()
    answers = {outcome.row.tag: outcome.result for outcome in outcomes}
    return [(answers[key + 1].exit_index, answers[key + 1].reason) for key in range(len(rules))]


def test_rows_together_that_may_leave_are_judged_after_every_segment() -> None:
    bench = Bench()
    unsure = EntropyRule(threshold=0.3)
    assert answers_of(bench, unsure, NeverRule()) == [(5, Reason.FINAL)] * 2
    assert [(call.exits, call.gaps) for call in bench.runner.calls] == [(1, None)] * len(EXITS)


@pytest.mark.parametrize(
    ("rules", "calls", "ends"),
    [
        ((NeverRule(), NeverRule()), [(0, 6)], [(5, Reason.FINAL)] * 2),
        (
            (LayerRule(layer=3), NeverRule(), LayerRule(layer=5)),
            [(0, 3), (3, 2), (5, 1)],
            [(2, Reason.LAYER), (5, Reason.FINAL), (4, Reason.LAYER)],
        ),
        (
            (EntropyRule(threshold=0.3, min_layer=4), ConfidenceRule(threshold=0.9, min_layer=5)),
            [(0, 4), (4, 1), (5, 1)],
            [(5, Reason.FINAL)] * 2,
        ),
        ((NeverRule(max_layer=2), NeverRule(max_layer=2)), [(0, 2)], [(1, Reason.MAX_LAYER)] * 2),
        (
            (EntropyRule(threshold=(0.3,) * 6, min_layer=5), NeverRule()),
            [(0, 5), (5, 1)],
            [(5, Reason.FINAL)] * 2,
        ),
        # They may not leave before layer 5, but count from the first exit on.
        (
            (PatienceRule(patience=3, min_layer=5), NeverRule()),
            [(k, 1) for k in range(6)],
            [(4, Reason.PATIENCE), (5, Reason.FINAL)],
        ),
        (
            (ConfidentPatienceRule(threshold=1, patience=3, min_layer=5), NeverRule()),
            [(k, 1) for k in range(6)],
            [(4, Reason.PATIENCE), (5, Reason.FINAL)],
        ),
        ((PatienceRule(patience=9), NeverRule()), [(k, 1) for k in range(6)], None),
        ((VotingRule(votes=9), NeverRule()), [(k, 1) for k in range(6)], None),
    ],
)
def test_rows_together_pass_what_none_of_them_asks(
    rules: tuple[ExitRule, ...],
    calls: list[tuple[int, int]],
    ends: list[tuple[int, Reason]] | None,
) -> None:
    bench = Bench()
    found = answers_of(bench, *rules)
    assert bench.calls == calls
    assert ends is None or found == ends


def test_rows_together_pass_nothing_while_somebody_waits() -> None:
    bench = Bench()
    bench.should_yield = lambda: True
    answers_of(bench, NeverRule(), NeverRule())
    assert [(call.exits, call.gaps) for call in bench.runner.calls] == [(1, None)] * len(EXITS)


@pytest.mark.parametrize(
    ("segment_s", "exits"),
    [
        (UNDISTURBED_S / 10, [6]),
        (UNDISTURBED_S / 5.5, [5, 1]),
        (UNDISTURBED_S / 2.5, [2, 2, 2]),
        (UNDISTURBED_S / 1.5, [1] * 6),
        (UNDISTURBED_S * 9, [1] * 6),
    ],
)
def test_nobody_waits_longer_than_a_call_may_take(segment_s: float, exits: list[int]) -> None:
    bench = Bench(segment_s=segment_s)
    assert bench.answer(fake_row(1)).exit_index == 5
    assert [exits for _, exits in bench.calls] == exits


def test_longer_rows_and_more_of_them_take_a_call_less_far() -> None:
    costs = [SegmentCost(fixed_s=0, per_token_s=UNDISTURBED_S / 15)] * len(EXITS)
    for num_rows, num_tokens, exits in ((2, 3, [2, 2, 2]), (2, 1, [6]), (1, 3, [5, 1])):
        bench = Bench()
        bench.core.costs._publish(costs)
        bench.turn(*[fake_row(key + 1, num_tokens) for key in range(num_rows)])
        while bench.core:
            bench.turn()
        assert [exits for _, exits in bench.calls] == exits


def test_call_ends_before_the_rows_deadline() -> None:
    bench = Bench(segment_s=UNDISTURBED_S / 10)
    row = fake_row(1, deadline_s=UNDISTURBED_S / 10 * 3.5)

    def pass_time() -> bool:
        bench.now_s = len(bench.runner.runs) * UNDISTURBED_S / 10
        return False

    bench.should_yield = pass_time
    outcomes = [*bench.turn(row), *bench.turn()]
    ((_, answer),) = outcomes
    assert isinstance(answer, Answer)
    # Three segments fit, and a fourth is begun before the deadline, as ever.
    assert bench.calls == [(0, 3), (3, 1)]
    assert (answer.exit_index, answer.reason) == (3, Reason.DEADLINE)


def test_row_whose_client_leaves_during_a_call_is_dropped_after_it() -> None:
    row = fake_row(1)

    def leave(key: int, index: int) -> Sequence[float]:
        row.cancelled = index == 1
        return UNSURE

    bench = Bench(leave, segment_s=UNDISTURBED_S / 2.5)
    outcomes = [*bench.turn(row), *bench.turn()]
    ((_, error),) = outcomes
    assert isinstance(error, Cancelled)
    assert bench.calls == [(0, 2)]


def test_segment_that_fails_during_a_call_gives_the_row_its_error() -> None:
    def break_down(key: int, index: int) -> Sequence[float]:
        if index == 3:
            raise RuntimeError("broken")
        return UNSURE

    bench = Bench(break_down)
    ((_, error),) = bench.turn(fake_row(1))
    assert isinstance(error, ModelFailure)
    assert not bench.core


def ticks(step_s: float) -> Iterator[float]:
    now_s = 0.0
    while True:
        yield now_s
        now_s += step_s


def test_books_hold_every_segment_of_a_call_and_their_times_add_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = ticks(1.0)
    monkeypatch.setattr("serve.engine.fast_path.perf_counter", lambda: next(clock))
    bench = Bench()
    costs = [SegmentCost(fixed_s=1e-4 * (index + 1), per_token_s=1e-6) for index in range(6)]
    bench.core.costs._publish(costs)
    bench.answer(fake_row(1, 7))
    assert bench.calls == [(0, 6)]
    bench.core.write_books()
    assert [(s.exit_index, s.num_rows, s.num_tokens, s.padded_tokens) for s in bench.seen] == [
        (index, 1, 7, 7) for index in range(6)
    ]
    times_s = [stats.segment_s for stats in bench.seen]
    assert sum(times_s) == pytest.approx(1.0)
    expected_s = [cost.seconds(1, 7) for cost in costs]
    assert times_s == pytest.approx([s / sum(expected_s) for s in expected_s])
    assert [stats.judge_s > 0 for stats in bench.seen] == [False] * 5 + [True]


def test_books_share_a_calls_time_as_so_many_rows_would_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, bench = ticks(1.0), Bench()
    monkeypatch.setattr("serve.engine.core.perf_counter", lambda: next(clock))
    costs = [SegmentCost(fixed_s=1e-4 * index, per_token_s=1e-6) for index in range(6)]
    bench.core.costs._publish(costs)
    answers_of(bench, *[NeverRule()] * 4)
    bench.core.write_books()
    expected_s = [cost.seconds(4, 3) for cost in costs]
    times_s = [stats.segment_s for stats in bench.seen]
    assert times_s == pytest.approx([s / sum(expected_s) for s in expected_s])


def test_call_that_is_left_early_is_booked_as_far_as_it_went() -> None:
    bench = Bench(sure_from(2))
    bench.answer(fake_row(1, rule=EntropyRule(threshold=0.3)))
    bench.core.write_books()
    assert [stats.exit_index for stats in bench.seen] == [0, 1, 2]
