"""The engine's turns on a fake clock."""

import math
from functools import partial

import pytest

from serve.engine.cost_model import SegmentCost
from serve.engine.row import Answer, Outcome, Priority, Row
from serve.engine.scheduler import BatchLimits
from serve.errors import Cancelled, ModelFailure
from serve.rules import EntropyRule, ExitRule, LayerRule, NeverRule
from serve.rules.criterion import Reason
from tests.serve.support.core_bench import CoreBench
from tests.serve.support.fake_runner import Heads
from tests.serve.support.fake_runner import fake_row as row_for

EXITS = (1, 2, 3, 4)
fake_row = partial(row_for, exits=EXITS)
SOON_S = 1e-5  # a turn that takes no time to speak of
SURE, UNSURE = (9.0, 0.0), (0.1, 0.0)


def bench_of(
    heads: Heads, limits: BatchLimits | None = None, tick_s: float = 1.0, **options: SegmentCost
) -> CoreBench:
    return CoreBench(heads, len(EXITS), limits, tick_s, **options)


def sure_from(first_sure: dict[int, int]) -> Heads:
    """Return heads that are unsure of a key until its exit index comes."""
    return lambda key, index: SURE if index >= first_sure[key] else UNSURE


def answer_of(outcome: Outcome) -> Answer:
    assert isinstance(outcome.result, Answer)
    return outcome.result


def test_an_answer_says_where_why_and_how_long() -> None:
    bench = bench_of(sure_from({1: 1}))
    bench.add(fake_row(1, rule=EntropyRule(threshold=0.3)))
    answer = answer_of(bench.finish()[0])
    assert answer.exit_index == 1
    assert answer.reason is Reason.CONFIDENT
    assert answer.logits.tolist() == list(SURE)
    assert 0 < answer.signal < 0.3
    assert (answer.queue_s, answer.compute_s) == (1, 1)


def test_rows_of_a_better_priority_enter_while_others_are_deeper_and_go_on_together() -> None:
    bench = bench_of(sure_from({1: 3, 2: 0, 3: 3, 4: 3}), BatchLimits(max_rows=3), SOON_S)
    rule = EntropyRule(threshold=0.3)
    bench.add(fake_row(1, rule=rule))
    bench.step()
    bench.add(*(fake_row(key, rule=rule, priority=Priority.HIGH) for key in (2, 3, 4)))
    bench.finish()
    together = [1, 3, 4]
    assert [run.keys for run in bench.runner.runs] == [[1], [2, 3, 4], *[together] * 3]


def test_a_second_batch_is_queued_before_the_first_ones_answers_are_read() -> None:
    limits = BatchLimits(max_rows=2, in_flight=2)
    bench = bench_of(sure_from(dict.fromkeys(range(1, 9), 2)), limits, SOON_S)
    events: list[str] = []
    bench.runner.queued = lambda: events.append("queued")
    bench.runner.read = lambda: events.append("read")
    bench.add(*(fake_row(key, rule=EntropyRule(threshold=0.3)) for key in range(1, 9)))
    assert len(bench.finish()) == 8
    unread = [events[:end].count("queued") - events[:end].count("read") for end in range(25)]
    assert len(events) == 24
    assert max(unread) == 2
    assert unread.count(0) < 3, "the device has something to do until the end"


def test_a_late_row_leaves_with_the_best_answer_it_has() -> None:
    bench = bench_of(sure_from({1: 3, 2: 3}))
    rule = EntropyRule(threshold=0.3)
    bench.add(fake_row(1, rule=rule, deadline_s=2.5), fake_row(2, rule=rule))
    bench.step()
    bench.step()
    outcomes = bench.finish()
    answer = answer_of(outcomes[0])
    assert outcomes[0].row.tag == 1
    assert (answer.reason, answer.exit_index) == (Reason.DEADLINE, 1)
    assert answer.logits.tolist() == pytest.approx(list(UNSURE))
    assert answer_of(outcomes[1]).reason is Reason.FINAL


def test_a_row_whose_client_has_left_is_dropped_before_its_next_segment() -> None:
    bench = bench_of(sure_from({1: 3, 2: 3, 3: 3}))
    rule = EntropyRule(threshold=0.3)
    running, waiting = fake_row(1, rule=rule), fake_row(3)
    bench.add(running, fake_row(2, rule=rule))
    bench.step()
    bench.add(waiting)
    running.cancelled = waiting.cancelled = True
    results = {o.row.tag: o.result for o in bench.finish()}
    assert isinstance(results[1], Cancelled)
    assert isinstance(results[3], Cancelled)
    assert [run.keys for run in bench.runner.runs] == [[1, 2], [2], [2], [2]]


class Fickle(Row):
    """A row that its client leaves while the engine looks at it: not at first, then for good."""

    def __init__(self, row: Row, patient_looks: int) -> None:
        super().__init__(row.input_ids, row.token_type_ids, row.rule, row.tag)
        self.patient_looks = patient_looks

    @property
    def cancelled(self) -> bool:  # type: ignore[override]
        self.patient_looks -= 1
        return self.patient_looks < 0

    @cancelled.setter
    def cancelled(self, value: bool) -> None:
        pass


@pytest.mark.parametrize("patient_looks", range(8))
def test_a_client_that_leaves_at_any_moment_gets_exactly_one_outcome(patient_looks: int) -> None:
    bench = bench_of(sure_from({1: 3, 2: 3}))
    bench.add(Fickle(fake_row(1), patient_looks), fake_row(2))
    assert sorted(outcome.row.tag for outcome in bench.finish()) == [1, 2]


@pytest.mark.parametrize("bad", [(math.nan, 0.0), (math.inf, 0.0), (-math.inf, -math.inf)])
@pytest.mark.parametrize("rule", [NeverRule(), NeverRule(max_layer=2), LayerRule(layer=1)])
def test_a_head_that_gives_no_number_gives_no_label(
    bad: tuple[float, float], rule: ExitRule
) -> None:
    bench = bench_of(lambda key, index: bad if key == 1 else UNSURE)
    bench.add(fake_row(1, rule=rule), fake_row(2, rule=rule))
    results = {o.row.tag: o.result for o in bench.finish()}
    assert isinstance(results[1], ModelFailure)
    assert isinstance(results[2], Answer)


def test_figures_of_a_batch_count_rows_tokens_and_padding() -> None:
    bench = bench_of(sure_from({1: 0, 2: 3}))
    rule = EntropyRule(threshold=0.3)
    bench.add(fake_row(1, 5, rule), fake_row(2, 4, rule))
    bench.finish()
    figures = [(s.exit_index, s.num_rows, s.num_tokens, s.padded_tokens) for s in bench.seen]
    assert figures == [(0, 2, 9, 10), (1, 1, 4, 4), (2, 1, 4, 4), (3, 1, 4, 4)]


@pytest.mark.parametrize(("num_rows", "num_tokens"), [(1, 5000), (5000, 1)])
def test_batches_may_be_of_any_size(num_rows: int, num_tokens: int) -> None:
    limits = BatchLimits(max_rows=num_rows, max_tokens=5000)
    # Where a launch costs this much, every row that may go along goes along.
    bench = bench_of(lambda key, index: SURE, limits, cost=SegmentCost(1.0, 1e-6))
    bench.add(*(fake_row(key, num_tokens) for key in range(1, num_rows + 1)))
    outcomes = bench.finish()
    assert sorted(outcome.row.tag for outcome in outcomes) == list(range(1, num_rows + 1))
    assert {answer_of(outcome).exit_index for outcome in outcomes} == {len(EXITS) - 1}
    assert len(bench.runner.runs) == len(EXITS)
