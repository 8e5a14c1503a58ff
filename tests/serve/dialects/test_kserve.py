"""KServe's protocol V1 against a running server."""

from typing import Any

import httpx

from tests.serve.support.live_server import LiveServer
from tests.serve.support.task_bundles import LABELS
from tests.support.tiny import MAX_TOKENS, tiny_tokenizer


def predict(server: LiveServer, instances: Any, model: str = "tiny", **more: Any) -> httpx.Response:
    body = {"instances": instances, **more}
    return server.http.post(f"/v1/models/{model}:predict", json=body)


def test_pairs_ids_and_the_dial_go_through(server: LiveServer) -> None:
    rule = {"rule": "layer", "layer": 2}
    ids = {"input_ids": tiny_tokenizer().encode("w3").ids}
    instances = ["w1", {"text": "w1", "text_pair": "w2"}, ids]
    own = server.answer(instances, exit=rule)["results"]
    found = predict(server, instances, parameters={"exit": rule, "timeout_ms": 60_000})
    assert found.json()["predictions"] == [result["scores"] for result in own]
    assert found.json()["exits"] == [result["exit"] for result in own]
    assert found.headers["x-offramp-exit-layer"] == "2,2,2"
    long = "w1 " * 2 * MAX_TOKENS
    (own_long,) = server.answer(long, truncate=True)["results"]
    cut = predict(server, [long], parameters={"truncate": True}).json()
    assert cut["predictions"] == [own_long["scores"]]


def test_other_tasks_are_answered(servers: LiveServer) -> None:
    (own,) = servers.answer("w1", model="multi_label")["results"]
    assert predict(servers, ["w1"], "multi_label").json()["predictions"] == [own["scores"]]
    (own,) = servers.answer("w1", model="regression")["results"]
    (name,) = LABELS["regression"]
    answer = predict(servers, ["w1"], "regression").json()
    assert answer["predictions"] == [{name: own["value"]}]
