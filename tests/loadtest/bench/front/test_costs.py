import os
import threading

import pytest

from loadtest.bench.front.costs import (
    OTHER,
    THIS,
    Cost,
    Lane,
    Line,
    figures,
    loop_ratio,
    median_cost,
    spent,
    thread_seconds,
)
from loadtest.compare.connection import request_bytes
from loadtest.compare.measure import WrongAnswers
from loadtest.http.server_process import ServerProcess
from tests.loadtest.conftest import StartFake


def test_time_goes_to_the_event_loop_the_engine_or_the_others() -> None:
    before = {7: 1.0, 8: 5.0, 9: 2.0}
    after = {7: 1.5, 8: 5.25, 9: 4.0, 10: 0.125}
    assert spent(7, before, after) == (0.5, 2.0, 0.375)
    assert spent(7, {}, {7: 1.0}) == (1.0, 0.0, 0.0)


def test_every_thread_of_a_process_is_read() -> None:
    ends = threading.Event()
    thread = threading.Thread(target=ends.wait)
    thread.start()
    seconds = thread_seconds(os.getpid())
    ends.set()
    thread.join()
    assert seconds[os.getpid()] > 0
    assert thread.native_id in seconds


def test_ratios_are_of_the_same_turn() -> None:
    slow_machine, fast_machine = Cost(4.0, 1, 0, 1), Cost(1.0, 1, 0, 1)
    halves = [Cost(2.0, 1, 0, 1), Cost(0.5, 1, 0, 1)]
    assert loop_ratio([slow_machine, fast_machine], halves) == 2.0
    assert median_cost([Cost(1, 5, 9, 3), Cost(2, 4, 8, 2), Cost(9, 6, 0, 1)]) == (2, 5, 8, 2)
    assert Cost(1, 2, 4, 0).sum_ms == 7


def test_server_that_fails_to_answer_has_no_cost(start_fake: StartFake) -> None:
    port = start_fake("hangs up").server_address[1]
    lane = Lane("fake", ServerProcess((), port), [request_bytes({})], 1)
    with pytest.raises(WrongAnswers, match="fake answered 0"):
        lane.load()


def line(server: str, exit: str, loop_ms: float, texts: int = 1) -> Line:
    return Line(server, exit, texts, [Cost(loop_ms, 2.0, 0.0, 300.0)])


def test_event_loops_are_compared_at_equal_requests() -> None:
    lines = [
        line(THIS, "never", 6.0),
        line(THIS, "balanced", 1.0),
        line(OTHER, "never", 8.0),
        line(OTHER, "balanced", 2.0),
        line(THIS, "balanced", 9.0, texts=32),
    ]
    found = figures(lines)
    assert [each["event loop / other's"] for each in found] == [0.75, 0.5, 1, 1, None]
    assert found[0]["sum_ms"] == 8.0
