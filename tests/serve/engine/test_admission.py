import pytest

from serve.engine.admission import Admission, QueueLimits
from serve.engine.cost_model import CostModel, SegmentCost
from serve.engine.row import Outcome, Priority, Row
from serve.engine.scheduler import BatchLimits
from serve.errors import InvalidRequest, OfframpError, Overloaded
from serve.rules import EntropyRule
from tests.serve.support.fake_runner import fake_row
from tests.serve.support.simulated_engine import answer_at

COSTS = CostModel([SegmentCost(fixed_s=1.0, per_token_s=0.25)] * 4)
BATCHES = BatchLimits(max_rows=4)


def rows(count: int, num_tokens: int = 2, **fields: object) -> list[Row]:
    rule = EntropyRule(threshold=0.1)
    return [fake_row(key, num_tokens, rule, **fields) for key in range(1, count + 1)]


def answered(row: Row, exit_index: int) -> Outcome:
    return Outcome(row, answer_at(exit_index))


@pytest.mark.parametrize(("count", "seconds"), [(8, 24), (2, 8)])
def test_the_backlog_is_what_full_batches_of_these_rows_take_through_all_segments(
    count: int, seconds: float
) -> None:
    admission = Admission(QueueLimits(max_rows=count), COSTS, BATCHES)
    assert admission.seconds == 0
    admission.admit(rows(count), 0)
    # Batches of up to four rows of two tokens: eight take 2 x 4 x (1 + 8 / 4) seconds.
    assert admission.seconds == pytest.approx(seconds)
    with pytest.raises(Overloaded) as refusal:
        admission.admit(rows(1), 0)
    assert refusal.value.retry_after_s == seconds


def test_rows_that_lately_left_early_shorten_it() -> None:
    admission = Admission(QueueLimits(), COSTS, BATCHES)
    before, now = rows(100), rows(8)
    admission.admit(before, 0)
    admission.release([answered(row, 0) for row in before], 75)  # as the costs say
    admission.admit(now, 75)
    assert admission.seconds == pytest.approx(6)


def test_what_was_long_ago_is_forgotten() -> None:
    admission = Admission(QueueLimits(), COSTS, BATCHES)
    for began_s, took_s in ((0.0, 0.1), (1000.0, 10.0)):
        now = rows(8)
        admission.admit(now, began_s)
        admission.release([answered(row, 3) for row in now], began_s + took_s)
    admission.admit(rows(8), 2000)
    assert admission.seconds == pytest.approx(10, rel=0.01)


@pytest.mark.parametrize(
    ("waiting", "asked", "error"),
    [
        ([], [1, 1, 1], None),
        ([], [1, 1, 1, 1], InvalidRequest),
        ([], [11], InvalidRequest),
        ([8], [2], None),
        ([8], [3], Overloaded),
        ([1, 1], [1, 1], Overloaded),
    ],
)
def test_rows_and_tokens_are_bounded(
    waiting: list[int], asked: list[int], error: type[OfframpError] | None
) -> None:
    admission = Admission(QueueLimits(max_rows=3, max_tokens=10), COSTS, BATCHES)
    admission.admit([fake_row(1, length) for length in waiting], 0)
    wanted = [fake_row(2, length) for length in asked]
    if error is None:
        admission.admit(wanted, 0)
        return
    with pytest.raises(error):
        admission.admit(wanted, 0)
    assert admission.held.rows == len(waiting), "all or none"


def fill(admission: Admission, client: str, num_tokens: int = 1) -> int:
    """Return how many single texts of a client are admitted until one is refused."""
    before = admission.held.rows
    with pytest.raises(Overloaded):
        while True:
            admission.admit(rows(1, num_tokens, client=client), 0)
    return admission.held.rows - before


@pytest.mark.parametrize("num_tokens", [1, 50], ids=["rows", "tokens"])
def test_a_client_fills_three_quarters_of_the_queue_and_others_still_find_room(
    num_tokens: int,
) -> None:
    limits = QueueLimits(max_rows=100) if num_tokens == 1 else QueueLimits(max_tokens=5000)
    admission = Admission(limits, COSTS, BATCHES)
    assert fill(admission, "heavy", num_tokens) == 75
    assert fill(admission, "second", num_tokens) == 18
    admission.admit(rows(1, num_tokens, client="light"), 0)


def test_a_client_s_share_grows_as_its_rows_are_answered() -> None:
    admission = Admission(QueueLimits(max_rows=100), COSTS, BATCHES)
    own = rows(50, 1, client="a")
    admission.admit(own, 0)
    fill(admission, "a")
    admission.release([answered(row, 0) for row in own], 100)
    assert fill(admission, "a") == 50


def test_one_large_request_is_taken_beside_the_few_rows_of_others() -> None:
    admission = Admission(QueueLimits(max_rows=256), COSTS, BATCHES)
    admission.admit(rows(256, 1, client="a"), 0)
    admission = Admission(QueueLimits(max_rows=256), COSTS, BATCHES)
    admission.admit(rows(2, 1, client="b"), 0)
    admission.admit(rows(230, 1, client="a"), 0)
    admission.admit(rows(1, 1, client="c"), 0)


def test_clients_without_rows_are_forgotten() -> None:
    admission = Admission(QueueLimits(), COSTS, BATCHES)
    for i in range(5):
        (row,) = rows(1, 1, client=f"10.0.0.{i}")
        admission.admit([row], 0)
        admission.release([answered(row, 0)], 1)
    assert not admission._clients


def test_a_queue_of_others_is_not_waited_for() -> None:
    admission = Admission(QueueLimits(), COSTS)
    for client, number in (("many", 20), ("few", 1)):
        admission.admit(rows(number, client=client), 0)
    assert admission.wait_s("new", Priority.NORMAL) == 0
    few = admission.wait_s("few", Priority.NORMAL)
    assert few == pytest.approx(admission.seconds * 2 / 21)
    for client in ("many", ""):
        assert admission.wait_s(client, Priority.NORMAL) == admission.seconds


def test_long_texts_of_others_make_short_ones_wait_for_their_turn_alone() -> None:
    costs = CostModel([SegmentCost(fixed_s=1e-3, per_token_s=1e-5, per_token_pair_s=1e-6)])
    admission = Admission(QueueLimits(), costs)
    admission.admit(rows(16, 380, client="many"), 0)
    now_s = 0.0
    for _ in range(20):  # answered one by one, between runs of the long ones
        admission.admit(own := rows(1, 20, client="few"), now_s)
        now_s += 0.04
        admission.release([answered(row, 0) for row in own], now_s)
    admission.admit(rows(1, 20, client="few"), now_s)
    assert admission.wait_s("few", Priority.NORMAL) <= 2 * costs.remaining_s(0, 1, 20)
    assert admission.wait_s("many", Priority.NORMAL) > 1


def test_rows_wait_for_none_of_a_worse_priority() -> None:
    admission = Admission(QueueLimits(), COSTS, BATCHES)
    for number, priority in ((10, Priority.HIGH), (10, Priority.NORMAL), (20, Priority.LOW)):
        admission.admit(rows(number, priority=priority), 0)
    shares = [admission.wait_s("", each) / admission.seconds for each in Priority]
    assert shares == [0.25, 0.5, 1]
