import asyncio
import json

from loadtest.compare.connection import request_bytes
from loadtest.compare.loads import ClosedLoop, arrive, saturate
from tests.loadtest.conftest import StartFake

REQUESTS = [request_bytes({"inputs": "word " * (1 + place)}) for place in range(7)]


def test_every_text_is_sent_however_short_the_time(start_fake: StartFake) -> None:
    load = ClosedLoop(clients=3, seconds=0.0, limit_s=60.0)
    loaded = asyncio.run(saturate(start_fake().server_address[1], REQUESTS, load))
    assert {answer.place for answer in loaded.answers} == set(range(7))
    assert {answer.status for answer in loaded.answers} == {200}
    assert all(json.loads(answer.body)["results"] for answer in loaded.answers)


def test_arrivals_come_at_their_rate_and_are_the_same_for_all(start_fake: StartFake) -> None:
    first, second = (
        asyncio.run(
            arrive(start_fake().server_address[1], REQUESTS, per_second=200.0, seconds=0.5)
        ).answers
        for _ in range(2)
    )
    assert 60 < len(first) == len(second) < 150
    assert {answer.status for answer in first} == {200}
