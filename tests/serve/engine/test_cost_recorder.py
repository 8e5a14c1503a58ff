"""What is recorded of runs, for the cost model and the metrics."""

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
def recorder(costs: Costs, seen: list[BatchStats]) -> CostRecorder:
    return CostRecorder(costs, seen.append)


def test_a_run_is_one_of_each_segment_and_judged_once(
    recorder: CostRecorder, costs: Costs, seen: list[BatchStats]
) -> None:
    recorder.record(SegmentRun(1, 3, 2, 9, 5, 0.3, 0.01))
    assert not seen
    recorder.flush()
    recorder.flush()
    assert costs.told == [(k, 2, 5, 0.31 / 3) for k in (1, 2, 3)]
    assert seen == [
        BatchStats(1, 2, 9, 10, pytest.approx(0.1), 0.0),
        BatchStats(2, 2, 9, 10, pytest.approx(0.1), 0.0),
        BatchStats(3, 2, 9, 10, pytest.approx(0.1), 0.01),
    ]


def test_segments_that_cost_the_same_do_so_however_often_they_run_together() -> None:
    costs = CostModel(6)
    recorder = CostRecorder(costs, lambda stats: None)
    for _ in range(300):
        for index in range(6):
            recorder.record(SegmentRun(index, index, 1, 32, 32, 0.0005, 0.0001))
    recorder.flush()
    costs.anchor()
    for _ in range(5000):
        recorder.record(SegmentRun(0, 5, 1, 32, 32, 0.003, 0.0006))
        recorder.flush()
    told_s = [costs.segment_s(index, 1, 32) for index in range(6)]
    assert told_s == [pytest.approx(0.0006, rel=0.05)] * 6


def test_row_that_is_alone_is_no_reason_to_think_that_batches_cost_less(
    recorder: CostRecorder, costs: Costs, seen: list[BatchStats]
) -> None:
    """Told that a launch costs next to nothing, the scheduler would go on in small batches."""
    alone = SegmentRun(0, 0, 1, 7, 7, 0.001, 0.0001)
    recorder.record(alone)
    recorder.flush()
    assert costs.told == [(0, 1, 7, 0.0011)], "as long as there are no batches"
    for _ in range(1000):
        recorder.record(SegmentRun(0, 0, 8, 56, 7, 0.002, 0.0005))
    for _ in range(1000):
        recorder.record(SegmentRun(0, 0, 64, 448, 7, 0.02, 0.02))
    recorder.record(alone)
    recorder.record(alone._replace(judge_s=0.0007))
    recorder.flush()
    assert costs.told[-2:] == [(0, 1, 7, 0.0015), (0, 1, 7, 0.0017)]
    assert [stats.judge_s for stats in seen[-2:]] == [0.0001, 0.0007], "metrics get the true time"
