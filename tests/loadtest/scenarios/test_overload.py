from loadtest.benchmarks.loads import request_bytes
from loadtest.scenarios.too_much_load import capacity, goodput
from tests.loadtest.conftest import StartFake

REQUESTS = [request_bytes({"inputs": f"word {place}"}) for place in range(5)]


def test_only_answers_in_time_are_good(start_fake: StartFake) -> None:
    port = start_fake().server_address[1]
    assert capacity(port, REQUESTS, seconds=0.0) > 0
    late = goodput(port, REQUESTS, per_second=100.0, seconds=0.2, deadline_s=0.0)
    assert late == (0, 0)
    found = goodput(port, REQUESTS, per_second=100.0, seconds=0.2, deadline_s=60.0)
    assert found.per_second > 0
