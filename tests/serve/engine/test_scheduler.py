"""Which rows run next, on a clock and with costs that the test chooses."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serve.engine.batch import Batch, gather
from serve.engine.cost_model import GUESS, CostModel, SegmentCost
from serve.engine.row import Priority, Row
from serve.engine.scheduler import BatchLimits, Scheduler
from tests.serve.support.fake_runner import fake_row

DEPTH = 4
GPU = CostModel([SegmentCost(fixed_s=1.0, per_token_s=0.0001)] * DEPTH)
CPU = CostModel([SegmentCost(fixed_s=0.001, per_token_s=0.1)] * DEPTH)

limits = st.builds(
    BatchLimits,
    max_rows=st.integers(1, 8),
    max_tokens=st.integers(8, 64),
    max_hold_passes=st.floats(0, 4),
    aging_s=st.floats(0.1, 20),
)
costs = st.sampled_from([GPU, CPU, CostModel([GUESS] * DEPTH)])


def row(key: int, num_tokens: int = 3, admitted_s: float = 0.0, **fields: object) -> Row:
    return fake_row(key, num_tokens, admitted_s=admitted_s, **fields)


def keys(batches: list[Batch]) -> list[int]:
    return [row.tag for batch in batches for row in batch.rows]


def deeper(scheduler: Scheduler, batches: list[Batch], leavers: tuple[int, ...] = ()) -> None:
    """Put the batches back as one, one deeper, without those that left."""
    batch = gather(batches)
    batch.depth += 1
    batch.set_rows([row for row in batch.rows if row.tag not in leavers])
    if batch.depth < DEPTH:
        scheduler.requeue(batch, 0)


def test_a_lone_text_does_not_wait_for_the_whole_of_a_large_request() -> None:
    # A row of 10 tokens takes 1 s per layer, so 4 s: one turn of theirs in 16 s.
    scheduler = Scheduler(BatchLimits(max_rows=1), CPU)
    scheduler.add([row(key, 10, ahead_tokens=10 * (key - 1)) for key in (1, 2, 3, 4)])
    assert keys(scheduler.schedule(0)) == [1]
    scheduler.add([row(9, 10, admitted_s=20.0)])
    assert [keys(scheduler.schedule(20))[0] for _ in range(4)] == [2, 9, 3, 4]


def test_where_tokens_are_dear_a_batch_holds_rows_of_like_length() -> None:
    scheduler = Scheduler(BatchLimits(), CPU)
    scheduler.add([row(1, 40), row(2, 4), row(3, 40), row(4, 4)])
    assert keys(scheduler.schedule(0)) == [1, 3]
    assert keys(scheduler.schedule(0)) == [2, 4]


@pytest.mark.parametrize("costs", [CPU, GPU])
def test_a_shrunken_batch_goes_on_before_a_full_one_starts(costs: CostModel) -> None:
    scheduler = Scheduler(BatchLimits(max_rows=8), costs)
    scheduler.add([row(1)])
    deeper(scheduler, scheduler.schedule(0))
    scheduler.add([row(key) for key in range(11, 19)])
    assert keys(scheduler.schedule(0)) == [1]


@pytest.mark.parametrize(("started_s", "held"), [(0.0, False), (10.0, False), (21.0, True)])
def test_rows_that_better_ones_keep_back_are_due_after_some_passes_from_admission_or_late_start(
    started_s: float, held: bool
) -> None:
    scheduler = Scheduler(BatchLimits(max_rows=8, aging_s=1), GPU)
    scheduler.add([row(1)])
    assert 20 < BatchLimits().max_hold_passes * GPU.remaining_s(0, 1, 3) < 21
    deeper(scheduler, scheduler.schedule(started_s))
    urgent = range(11, 19)
    scheduler.add([row(key, admitted_s=22.0, priority=Priority.HIGH) for key in urgent])
    assert keys(scheduler.schedule(22.0)) == (list(urgent) if held else [1])


def test_those_who_come_while_others_run_count_when_the_next_batch_is_formed() -> None:
    scheduler = Scheduler(BatchLimits(max_rows=2), GPU)
    scheduler.requeue(Batch([row(1), row(2)], depth=1), 0)
    scheduler.add([row(3, 4), row(4, 40)])
    batches = scheduler.schedule(0)
    assert keys(batches) == [1, 2]
    scheduler.add([row(5, 4)])
    deeper(scheduler, batches, leavers=(1, 2))
    assert keys(scheduler.schedule(0)) == [3, 5]
    assert keys(scheduler.schedule(0)) == [4]
    assert not scheduler


@pytest.mark.parametrize("costs", [GPU, CPU])
def test_waiting_rows_go_by_priority_and_then_by_age(costs: CostModel) -> None:
    scheduler = Scheduler(BatchLimits(max_rows=1), costs)
    scheduler.add([row(1, priority=Priority.LOW), row(2), row(3, priority=Priority.HIGH), row(4)])
    assert [keys(scheduler.schedule(0)) for _ in range(4)] == [[3], [2], [4], [1]]


def test_a_batch_carries_the_priority_of_its_best_row() -> None:
    scheduler = Scheduler(BatchLimits(), GPU)
    scheduler.requeue(Batch([row(1, priority=Priority.LOW)], depth=2), 0)
    batch = Batch([row(2, priority=Priority.LOW), row(3, priority=Priority.HIGH)], depth=1)
    scheduler.requeue(batch, 0)
    assert keys(scheduler.schedule(0)) == [2, 3]


def test_waiting_makes_up_for_a_low_priority() -> None:
    scheduler = Scheduler(BatchLimits(max_rows=1, aging_s=5), CPU)
    scheduler.add([row(1, priority=Priority.LOW)])
    scheduler.add([row(2, admitted_s=4.9), row(3, admitted_s=5.1)])
    assert [keys(scheduler.schedule(6)) for _ in range(3)] == [[2], [1], [3]]


def test_a_batch_whose_deadline_comes_near_is_not_overtaken() -> None:
    scheduler = Scheduler(BatchLimits(), CPU)
    scheduler.requeue(Batch([row(1, deadline_s=2.0)], depth=1), 0)
    scheduler.requeue(Batch([row(2)], depth=2), 0)
    assert keys(scheduler.schedule(1.5)) == [1]


def test_another_batch_does_not_run_into_the_time_that_a_deadline_needs() -> None:
    scheduler = Scheduler(BatchLimits(), CPU)
    a_segment_s = CPU.segment_s(2, 10, 3)
    urgent = row(1, deadline_s=a_segment_s + CPU.remaining_s(1, 1, 3))
    scheduler.requeue(Batch([urgent], depth=1), 0)
    scheduler.requeue(Batch([row(key) for key in range(2, 12)], depth=2), 0)
    assert keys(scheduler.schedule(0)) == [1]


def test_rows_that_can_wait_stay_behind_where_a_deadline_would_pass() -> None:
    scheduler = Scheduler(BatchLimits(), CPU)
    in_time_s = CPU.remaining_s(0, 3, 5)
    scheduler.add([row(key, 5) for key in range(2, 8)])
    scheduler.add([row(1, 5, deadline_s=in_time_s)])
    assert keys(scheduler.schedule(0)) == [1, 2, 3]
    scheduler = Scheduler(BatchLimits(), CPU)
    scheduler.add([row(key, 5, deadline_s=in_time_s + key / 100) for key in range(6)])
    assert keys(scheduler.schedule(0)) == [0, 1, 2, 3, 4, 5], "some would be late anyhow"


def test_a_batch_with_a_deadline_is_not_joined_to_one_that_would_make_it_late() -> None:
    for deadline_s, together in ((CPU.remaining_s(1, 2, 3), False), (100.0, True)):
        scheduler = Scheduler(BatchLimits(), CPU)
        scheduler.requeue(Batch([row(key) for key in range(2, 12)], depth=1), 0)
        scheduler.requeue(Batch([row(1, deadline_s=deadline_s)], depth=1), 0)
        assert (len(keys(scheduler.schedule(0))) == 11) is together


@pytest.mark.parametrize(("costs", "mates"), [(CPU, 2), (GPU, 9)])
def test_low_priorities_fill_up_a_batch_only_as_far_as_it_bears(
    costs: CostModel, mates: int
) -> None:
    scheduler = Scheduler(BatchLimits(), costs)
    scheduler.add([row(key, priority=Priority.LOW) for key in range(2, 11)])
    scheduler.add([row(1, priority=Priority.HIGH)])
    assert keys(scheduler.schedule(0)) == [1, *range(2, 2 + mates)]


def test_a_row_of_rare_length_is_overtaken_by_no_late_comer() -> None:
    scheduler = Scheduler(BatchLimits(), CPU)
    came = ((0, 40), (1, 10), (4, 40), (4, 40))
    scheduler.add([row(key, n, admitted_s=s) for key, (s, n) in enumerate(came)])
    assert keys(scheduler.schedule(5)) == [0], "the others of its length came late"
    scheduler.add([row(4, 40, admitted_s=9)])
    assert keys(scheduler.schedule(9)) == [1]
    assert keys(scheduler.schedule(9)) == [2, 3]


def test_rows_whose_waiting_has_made_up_for_their_priority_come_along() -> None:
    scheduler = Scheduler(BatchLimits(aging_s=5), CPU)
    scheduler.add([row(1, admitted_s=3), row(2, priority=Priority.LOW)])
    scheduler.add([row(key, admitted_s=3, priority=Priority.LOW) for key in range(3, 10)])
    assert keys(scheduler.schedule(6)) == [1, 2, 3, 4, 5, 6], "three times as slow, no more"


@pytest.mark.parametrize(("costs", "together"), [(CPU, False), (GPU, True)])
def test_a_batch_meets_worse_ones_only_where_it_bears_them(
    costs: CostModel, together: bool
) -> None:
    scheduler = Scheduler(BatchLimits(), costs)
    low = [row(key, priority=Priority.LOW) for key in range(2, 12)]
    scheduler.requeue(Batch(low, depth=1), 0)
    scheduler.requeue(Batch([row(1, priority=Priority.HIGH)], depth=1), 0)
    assert (len(keys(scheduler.schedule(0))) == 11) is together


def test_a_deadline_makes_up_for_no_priority() -> None:
    scheduler = Scheduler(BatchLimits(max_rows=1, aging_s=5), CPU)
    scheduler.add([row(1, priority=Priority.LOW, deadline_s=3), row(2), row(3, deadline_s=3)])
    assert [keys(scheduler.schedule(0)) for _ in range(3)] == [[3], [2], [1]]


def test_a_large_request_with_a_deadline_takes_turns_as_any_other() -> None:
    scheduler = Scheduler(BatchLimits(max_rows=1, aging_s=5), CPU)
    scheduler.add([row(key, deadline_s=4.0, ahead_tokens=3 * key) for key in range(4)])
    scheduler.add([row(10, admitted_s=1.0, deadline_s=5.0)])
    assert [keys(scheduler.schedule(1))[0] for _ in range(5)] == [0, 10, 1, 2, 3]


def test_rows_that_are_gone_never_run() -> None:
    scheduler = Scheduler(BatchLimits(), GPU)
    came = [row(1), row(2, cancelled=True), row(3, deadline_s=1.0), row(4, deadline_s=1.5), row(5)]
    scheduler.add(came)
    gone = scheduler.drop_expired(1.0)
    assert sorted(row.tag for row in gone) == [2, 3]
    assert scheduler.drop_expired(1.0) == []
    assert keys(scheduler.schedule(1.0)) == [4, 1, 5]


@settings(deadline=None)
@given(limits, costs, st.lists(st.integers(1, 32), min_size=1, max_size=40), st.data())
def test_every_row_goes_through_every_depth_once_and_no_batch_breaks_the_limits(
    bounds: BatchLimits, model: CostModel, lengths: list[int], data: st.DataObject
) -> None:
    scheduler = Scheduler(bounds, model)
    rows = [row(key, length) for key, length in enumerate(lengths, 1)]
    depths = {row.tag: 0 for row in rows}
    now_s = 0.0
    while rows or scheduler:
        arriving = data.draw(st.integers(0 if scheduler else 1, 5))
        scheduler.add(rows[:arriving])
        rows = rows[arriving:]
        now_s += data.draw(st.sampled_from([0.0, 0.1, 10.0]))
        if not scheduler:
            continue
        batches = scheduler.schedule(now_s)
        check_limits(batches, bounds)
        for batch in batches:
            for each in batch.rows:
                assert depths[each.tag] == batch.depth
                depths[each.tag] += 1
        deeper(scheduler, batches)
    assert set(depths.values()) == {DEPTH}


def check_limits(batches: list[Batch], bounds: BatchLimits) -> None:
    assert len({batch.depth for batch in batches}) == 1
    num_rows = sum(len(batch.rows) for batch in batches)
    longest = max(batch.longest for batch in batches)
    assert num_rows <= bounds.max_rows
    assert num_rows == 1 or num_rows * longest <= bounds.max_tokens


@pytest.mark.parametrize("priority", list(Priority))
@pytest.mark.parametrize("deadline_in_s", [math.inf, 20.0])
@settings(max_examples=20, deadline=None)
@given(bounds=limits, model=st.sampled_from([GPU, CPU]))
def test_no_row_starves_under_a_steady_stream_of_new_ones(
    priority: Priority, deadline_in_s: float, bounds: BatchLimits, model: CostModel
) -> None:
    """More work comes than can be done, all of it ahead of the row by priority or deadline."""
    scheduler = Scheduler(bounds, model)
    scheduler.add([row(0, 7, priority=priority)])
    now_s, turn = 0.0, 0
    # Ranks do not change: no row that comes so much later is ahead of this one.
    latest_s = 3 * bounds.aging_s + 20.0
    before = 0
    while True:
        turn += 1
        scheduler.add(
            [row(turn, 3, now_s, priority=Priority.HIGH, deadline_s=now_s + deadline_in_s)]
        )
        before += now_s <= latest_s
        batches = scheduler.schedule(now_s)
        batch = gather(batches)
        now_s += max(model.segment_s(batch.depth, len(batch.rows), batch.longest), 0.5)
        if any(each.tag == 0 for each in batch.rows) and batch.depth == DEPTH - 1:
            return
        deeper(scheduler, batches)
        assert turn <= 10 * DEPTH * (before + 10)
