from loadtest.compare.connection import request_bytes
from loadtest.overload.goodput import Goodput, capacity, compared, goodput
from tests.loadtest.conftest import StartFake

REQUESTS = [request_bytes({"inputs": f"word {place}"}) for place in range(5)]


def test_only_answers_in_time_are_good(start_fake: StartFake) -> None:
    port = start_fake().server_address[1]
    assert capacity(port, REQUESTS, seconds=0.0, turns=1) > 0
    late = goodput(port, REQUESTS, per_second=100.0, seconds=0.2, deadline_s=0.0)
    assert (late.good, late.layers) == (0, 0)
    found = goodput(port, REQUESTS, per_second=100.0, seconds=0.2, deadline_s=60.0)
    assert found.good == found.offered > 0


def test_each_figure_is_the_median_of_the_turns() -> None:
    turns = [
        (Goodput(100, good, 0.0, 2.5, 1.0), Goodput(100, 2 * good, 0.5, 1.5, 1.0))
        for good in (10, 40, 20)
    ]
    row = compared(8, 1.5, turns).row
    assert row["in time/s without"] == 20
    assert row["in time/s with overload"] == 40
    assert row["with / without"] == "2.00"
