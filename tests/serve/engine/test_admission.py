import pytest

from serve.engine.admission import Admission, QueueLimits
from serve.engine.cost_model import CostModel, SegmentCost
from serve.engine.row import Answer, Outcome, Row
from serve.engine.scheduler import BatchLimits
from serve.errors import Overloaded
from serve.rules.reason import Reason
from tests.serve.support.fake_runner import fake_row

COSTS = CostModel.of([SegmentCost(fixed_s=1.0, per_token_s=0.25)] * 4)
BATCHES = BatchLimits(max_rows=4)


def rows(count: int, num_tokens: int = 2) -> list[Row]:
    return [fake_row(key, num_tokens) for key in range(1, count + 1)]


def answered(row: Row, exit_index: int) -> Outcome:
    return Outcome(row, Answer([0.0], exit_index, Reason.FINAL, 0.0, 0.0, 0.0, exit_index))  # type: ignore[arg-type]


def test_without_figures_there_is_no_backlog() -> None:
    admission = Admission(QueueLimits(), CostModel(4), BATCHES)
    admission.admit(rows(3))
    assert admission.backlog_s == 0


def test_the_backlog_is_what_full_batches_of_these_rows_take_through_all_segments() -> None:
    admission = Admission(QueueLimits(), COSTS, BATCHES)
    assert admission.backlog_s == 0
    admission.admit(rows(8))
    # Two batches of four rows of two tokens, each 4 x (1 + 8 / 4) seconds.
    assert admission.backlog_s == pytest.approx(24)


def test_a_few_rows_share_a_batch() -> None:
    admission = Admission(QueueLimits(), COSTS, BATCHES)
    admission.admit(rows(2))
    assert admission.backlog_s == pytest.approx(8)


def test_rows_that_lately_left_early_shorten_it() -> None:
    admission = Admission(QueueLimits(), COSTS, BATCHES)
    before, now = rows(100), rows(8)
    admission.admit(before)
    admission.release([answered(row, 0) for row in before])
    admission.admit(now)
    assert admission.backlog_s == pytest.approx(6)


def test_what_was_long_ago_is_forgotten() -> None:
    admission = Admission(QueueLimits(), COSTS, BATCHES)
    for exit_index, times in ((0, 5000), (3, 20_000)):
        for _ in range(times):
            (row,) = rows(1)
            admission.admit([row])
            admission.release([answered(row, exit_index)])
    admission.admit(rows(8))
    assert admission.backlog_s == pytest.approx(24, rel=0.01)


def test_a_refusal_says_when_to_come_back() -> None:
    admission = Admission(QueueLimits(max_rows=8), COSTS, BATCHES)
    admission.admit(rows(8))
    with pytest.raises(Overloaded) as refusal:
        admission.admit(rows(1))
    assert refusal.value.retry_after_s == 24
