"""Which exits a run passes without a stop, and where it ends for the sake of other rows."""

from serve.engine.cost_model import SegmentCost
from serve.engine.row import Priority
from serve.engine.scheduler import BatchLimits
from serve.rules import EntropyRule, LayerRule
from tests.serve.support.core_bench import CoreBench
from tests.serve.support.fake_runner import fake_row

NUM_EXITS = 6
TOKEN_S = 0.002  # of one token in one segment


def bench_of(token_s: float, limits: BatchLimits | None = None) -> CoreBench:
    """Return a bench whose clock goes on in segments only.

    A token always takes the same time, so that batches save nothing if they run together.
    """
    cost = SegmentCost(per_token_s=token_s)
    bench = CoreBench(lambda key, index: (0.0, 0.1), NUM_EXITS, limits, cost=cost)

    def pass_time() -> None:
        run = bench.runner.runs[-1]
        segments = run.exit_index + 1 - run.index
        bench.now_s += token_s * len(run.keys) * run.num_tokens * segments

    bench.runner.queued = pass_time
    return bench


def runs(bench: CoreBench) -> list[tuple[list[int], int, int]]:
    """Go on to the end; return keys of the rows, first segment and exit of every run."""
    bench.finish()
    return [(run.keys, run.index, run.exit_index) for run in bench.runner.runs]


def test_rows_pass_the_exits_where_none_may_leave_while_other_rows_wait() -> None:
    bench = bench_of(token_s=1e-6)
    bench.add(fake_row(1, 3), fake_row(2, 3, LayerRule(layer=5)))
    bench.add(fake_row(3, 9), fake_row(4, 9))
    assert runs(bench) == [([1, 2], 0, 4), ([1], 5, 5), ([3, 4], 0, 5)]


def test_a_row_that_may_leave_or_wants_a_record_is_asked_at_every_exit() -> None:
    for row in (fake_row(2, 3, EntropyRule(threshold=0.1)), fake_row(2, 3, exit_trace=[])):
        bench = bench_of(token_s=1e-6)
        bench.add(fake_row(1, 3), row)
        assert runs(bench) == [([1, 2], index, index) for index in range(6)]


def test_a_run_is_bounded_in_time_so_that_rows_of_a_better_priority_get_their_turn() -> None:
    bench = bench_of(token_s=TOKEN_S)
    bench.step(fake_row(1, 6))
    bench.add(fake_row(2, 2, priority=Priority.HIGH))
    assert runs(bench) == [([1], 0, 2), ([2], 0, 5), ([1], 3, 5)]


def test_a_run_ends_before_its_own_rows_are_late() -> None:
    bench = bench_of(token_s=TOKEN_S)
    bench.add(fake_row(1, 2, deadline_s=0.018))
    assert runs(bench) == [([1], 0, 3), ([1], 4, 4)]


def test_a_run_ends_before_a_row_that_waits_must_start() -> None:
    bench = bench_of(token_s=TOKEN_S)
    bench.step(fake_row(1, 6))
    bench.step(fake_row(2, 2, deadline_s=0.036 + 0.014 + 2 * 0.024))
    assert runs(bench) == [([1], 0, 2), ([1], 3, 3), ([2], 0, 5), ([1], 4, 5)]


def test_rows_with_a_deadline_give_way_to_a_better_priority_after_one_segment() -> None:
    bench = bench_of(token_s=TOKEN_S, limits=BatchLimits(aging_s=0.002))
    bench.step(fake_row(1, 6, deadline_s=0.105))
    bench.add(fake_row(2, 2, priority=Priority.HIGH))
    assert runs(bench)[:4] == [([1], 0, 2), ([1], 3, 3), ([2], 0, 1), ([1], 4, 4)]
    assert runs(bench)[4:] == [([2], 2, 4), ([1], 5, 5), ([2], 5, 5)]


def test_rows_that_are_held_back_go_on_when_they_are_due() -> None:
    bench = bench_of(token_s=TOKEN_S, limits=BatchLimits(max_hold_passes=0.7, aging_s=0.002))
    bench.step(fake_row(1, 6))
    bench.step(fake_row(2, 5, priority=Priority.HIGH))
    assert runs(bench)[:4] == [([1], 0, 2), ([2], 0, 0), ([2], 1, 1), ([1], 3, 3)]
    assert runs(bench)[4:] == [([1], 4, 4), ([1], 5, 5), ([2], 2, 5)]
