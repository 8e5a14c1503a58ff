import asyncio
import json
from urllib.parse import urlsplit

from loadtest.compare.connection import request_bytes
from loadtest.compare.loads import Closed, arrive, saturate
from tests.loadtest.conftest import StartFake
from tests.loadtest.fake_server import FakeServer

REQUESTS = [request_bytes({"inputs": "word " * (1 + place)}) for place in range(7)]


def port(server: FakeServer) -> int:
    return urlsplit(server.url).port or 0


def test_every_text_is_asked_about_however_short_the_time(start_fake: StartFake) -> None:
    load = Closed(clients=3, seconds=0.0, limit_s=60.0)
    loaded = asyncio.run(saturate(port(start_fake()), REQUESTS, load))
    assert {answer.place for answer in loaded.answers} == set(range(7))
    assert {answer.status for answer in loaded.answers} == {200}
    assert all(json.loads(answer.body)["results"] for answer in loaded.answers)


def test_arrivals_come_at_their_rate(start_fake: StartFake) -> None:
    loaded = asyncio.run(arrive(port(start_fake()), REQUESTS, per_second=200.0, seconds=0.5))
    assert 60 < len(loaded.answers) < 150
    assert {answer.status for answer in loaded.answers} == {200}


def test_two_servers_get_the_same_arrivals(start_fake: StartFake) -> None:
    counts = {
        len(asyncio.run(arrive(port(start_fake()), REQUESTS, 100.0, 0.3)).answers) for _ in range(2)
    }
    assert len(counts) == 1


def test_server_that_hangs_up_gives_no_answer(start_fake: StartFake) -> None:
    load = Closed(clients=1, seconds=0.0, limit_s=60.0)
    loaded = asyncio.run(saturate(port(start_fake("hangs up")), REQUESTS, load))
    assert [answer.status for answer in loaded.answers] == [0]
