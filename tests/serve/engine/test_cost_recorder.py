"""What is written down of runs, for the cost model and for whoever counts."""

import pytest

from serve.engine.cost_model import CostModel
from serve.engine.cost_recorder import CostRecorder, SegmentRun
from serve.engine.row import BatchStats


class Costs(CostModel):
    """Notes what it is told, (segment, rows, tokens, seconds)."""

    def __init__(self) -> None:
        super().__init__(4)
        self.told: list[tuple[int, int, int, float]] = []

    def observe(self, index: int, num_rows: int, num_tokens: int, seconds: float) -> None:
        self.told.append((index, num_rows, num_tokens, pytest.approx(seconds)))


@pytest.fixture
def costs() -> Costs:
    return Costs()


@pytest.fixture
def seen() -> list[BatchStats]:
    return []


@pytest.fixture
def books(costs: Costs, seen: list[BatchStats]) -> CostRecorder:
    return CostRecorder(costs, seen.append)


def test_a_run_is_one_of_each_segment_and_judged_once(
    books: CostRecorder, costs: Costs, seen: list[BatchStats]
) -> None:
    books.note(SegmentRun(range(1, 4), 2, 9, 5, 0.3), judge_s=0.01)
    assert not seen
    books.write()
    books.write()
    assert costs.told == [(k, 2, 5, 0.31 / 3) for k in (1, 2, 3)]
    assert seen == [
        BatchStats(1, 2, 9, 10, pytest.approx(0.1), 0.0),
        BatchStats(2, 2, 9, 10, pytest.approx(0.1), 0.0),
        BatchStats(3, 2, 9, 10, pytest.approx(0.1), 0.01),
    ]


def test_segments_that_cost_the_same_do_so_however_often_they_run_together() -> None:
    costs = CostModel(6)
    books = CostRecorder(costs, lambda stats: None)
    for _ in range(300):
        for index in range(6):
            books.note(SegmentRun(range(index, index + 1), 1, 32, 32, 0.0005), judge_s=0.0001)
    books.write()
    costs.anchor()
    for _ in range(5000):
        books.note(SegmentRun(range(6), 1, 32, 32, 0.003), judge_s=0.0006)
        books.write()
    told_s = [costs.segment_s(index, 1, 32) for index in range(6)]
    assert told_s == [pytest.approx(0.0006, rel=0.05)] * 6


def test_row_that_is_alone_is_no_reason_to_think_that_batches_cost_less(
    books: CostRecorder, costs: Costs, seen: list[BatchStats]
) -> None:
    """Told that a launch costs next to nothing, the scheduler would go on in small batches."""
    alone = SegmentRun(range(1), 1, 7, 7, 0.001)
    books.note(alone, judge_s=0.0001)
    books.write()
    assert costs.told == [(0, 1, 7, 0.0011)], "as long as there are no batches"
    for _ in range(1000):
        books.note(SegmentRun(range(1), 8, 56, 7, 0.002), judge_s=0.0005)
    for _ in range(1000):
        books.note(SegmentRun(range(1), 64, 448, 7, 0.02), judge_s=0.02)
    books.note(alone, judge_s=0.0001)
    books.note(alone, judge_s=0.0007)
    books.write()
    assert costs.told[-2:] == [(0, 1, 7, 0.0015), (0, 1, 7, 0.0017)]
    assert [stats.judge_s for stats in seen[-2:]] == [0.0001, 0.0007], "who counts is told as it is"


def test_of_shared_layers_every_depth_is_counted(
    books: CostRecorder, costs: Costs, seen: list[BatchStats]
) -> None:
    books.note(SegmentRun(range(2, 3), 4, 20, 6, 0.4), 0.04, [(2, 1, 5), (3, 3, 15)])
    books.write()
    assert costs.told == [(2, 4, 6, 0.44)]
    assert seen == [
        BatchStats(2, 1, 5, 6, pytest.approx(0.1), pytest.approx(0.01)),
        BatchStats(3, 3, 15, 18, pytest.approx(0.3), pytest.approx(0.03)),
    ]
