"""Many clients at once, some of them hostile or broken."""

import json
import random
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.serve.api.conftest import StartServer
from tests.serve.support.live_server import TIMEOUT_S, Problem, raw_request
from tests.support.patience import until
from tests.support.tiny import WORDS

LONG_TEXT = " ".join(WORDS[:60])
MANY = 4096
ROOMY = {"max_inputs": MANY, "max_queue_rows": MANY, "max_queue_tokens": 10**6}


def request_of(body: dict[str, Any]) -> bytes:
    return raw_request("/v1/classify", json.dumps(body).encode())


@pytest.mark.parametrize("behind", [[], ["w1"]])
def test_rows_of_a_client_that_leaves_are_dropped(
    start_server: StartServer, behind: list[str]
) -> None:
    server = start_server(**ROOMY)
    requests = [[LONG_TEXT] * MANY, *behind]
    with server.half_sent(b"".join(request_of({"inputs": inputs}) for inputs in requests)):
        until(lambda: server.metric("offramp_queue_depth") > 0)
    until(lambda: server.metric("offramp_client_disconnects_total", model="tiny") == 1)
    until(lambda: server.metric("offramp_queue_depth") == 0)
    assert server.metric("offramp_exits_total") < MANY
    assert server.metric("offramp_requests_total", code="499") == 1
    server.answer("w1")


def test_client_that_stops_in_the_middle_harms_no_other(start_server: StartServer) -> None:
    server = start_server()
    whole = request_of({"inputs": "w1"})
    for length in (1, 20, whole.index(b"\r\n\r\n") + 2, len(whole) - 10, len(whole) - 1):
        with server.half_sent(whole[:length]):
            server.answer("w1")
    with server.half_sent(whole[:-1]) as connection:
        server.answer("w1")
        connection.sendall(whole[-1:])
        assert connection.recv(4096).startswith(b"HTTP/1.1 200 ")
    server.answer("w1")
    until(lambda: server.metric("offramp_requests_total", code="499") == 2)
    assert server.metric("offramp_requests_total", code="500") == 0


def test_what_does_not_fit_into_the_queue_is_told_when_to_come_back(
    start_server: StartServer,
) -> None:
    server = start_server(max_queue_rows=64)
    codes: set[int] = set()

    def ask(client: int) -> None:
        response = server.classify(
            [LONG_TEXT] * 40, exit={"rule": "layer", "layer": 1 + client % 4}
        )
        codes.add(response.status_code)
        if response.status_code == 200:
            exits = [result["exit"]["layer"] for result in response.json()["results"]]
            assert exits == [1 + client % 4] * 40
        else:
            problem = Problem.of(response)
            assert (problem.status, problem.code) == (429, "overloaded")
            # Of the whole queue, or of the share that a client may have of it.
            assert re.search("at most 64|your share of the queue", problem.message)
            assert int(response.headers["retry-after"]) >= 1

    def both_seen() -> bool:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(ask, range(16)))
        return codes == {200, 429}

    until(both_seen)
    assert server.metric("offramp_queue_depth") == 0
    rejected = server.metric("offramp_rejected_total", code="overloaded")
    assert rejected == server.metric("offramp_requests_total", code="429") > 0


def test_bad_requests_never_harm_good_ones(start_server: StartServer) -> None:
    server = start_server()
    texts = [" ".join(WORDS[i : i + 1 + i % 9]) for i in range(24)]
    expected = {text: server.answer(text, exit="balanced")["results"][0] for text in texts}

    def good(seed: int) -> None:
        mine = random.Random(seed).sample(texts, 3)
        for text, result in zip(mine, server.answer(mine, exit="balanced")["results"], strict=True):
            assert result["exit"]["layer"] == expected[text]["exit"]["layer"]
            assert result["label"] == expected[text]["label"]
            assert abs(result["score"] - expected[text]["score"]) < 1e-4

    bad_bodies = [
        {"inputs": ["w1", ""]},
        {"inputs": ["w1", "w2 " * 100]},
        {"inputs": ["w1"] * 300},
        {"inputs": "w1", "exit": {"rule": "patience", "patience": 10**30}},
        {"inputs": "w1", "exit": {"rule": "layer", "layer": 99}},
        {"inputs": "w1", "timeout_ms": 1e-9, "top_k": 0},
        {"inputs": "w1", "exit": {"rule": "confidence", "threshold": 10**30}},
    ]

    def bad(seed: int) -> None:
        response = server.http.post("/v1/classify", json=bad_bodies[seed % len(bad_bodies)])
        assert 400 <= Problem.of(response).status < 500

    def rude(seed: int) -> None:
        whole = request_of({"inputs": [LONG_TEXT] * 64})
        with server.half_sent(whole[: random.Random(seed).randrange(len(whole))]):
            pass

    def hasty(seed: int) -> None:
        response = server.classify(texts[seed % 24], timeout_ms=1)
        assert response.status_code in (200, 504)
        if response.is_success:
            assert response.json()["results"][0]["exit"]["reason"] in ("deadline", "final")

    def act(seed: int) -> None:
        (good, bad, good, rude, hasty)[seed % 5](seed // 5)

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(act, range(400), timeout=TIMEOUT_S))
    until(lambda: server.metric("offramp_queue_depth") == 0)
    assert server.http.get("/health/ready").status_code == 200
