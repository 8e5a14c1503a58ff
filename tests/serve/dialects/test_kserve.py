"""KServe's protocol V1 against a running server."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.serve.api.conftest import StartServer
from tests.serve.support.live_server import LiveServer
from tests.serve.support.openapi_fuzz import make_key
from tests.serve.support.task_bundles import LABELS
from tests.support.tiny import MAX_TOKENS, tiny_tokenizer


def predict(server: LiveServer, instances: Any, model: str = "tiny", **more: Any) -> httpx.Response:
    body = {"instances": instances, **more}
    return server.http.post(f"/v1/models/{model}:predict", json=body)


def refusal(response: httpx.Response) -> tuple[int, str]:
    body = response.json()
    assert set(body) == {"error"}
    return response.status_code, body["error"]


def test_pairs_ids_and_the_dial_go_through(server: LiveServer) -> None:
    rule = {"rule": "layer", "layer": 2}
    ids = {"input_ids": tiny_tokenizer().encode("w3").ids}
    instances = ["w1", {"text": "w1", "text_pair": "w2"}, ids]
    own = server.answer(instances, exit=rule)["results"]
    by_field = predict(server, instances, parameters={"exit": rule, "timeout_ms": 60_000})
    by_header = server.http.post(
        "/v1/models/tiny:predict",
        json={"instances": instances},
        headers={"X-Offramp-Exit": json.dumps(rule)},
    )
    for answer in (by_field, by_header):
        assert answer.json()["predictions"] == [result["scores"] for result in own]
        assert answer.json()["exits"] == [result["exit"] for result in own]
        assert answer.headers["x-offramp-exit-layer"] == "2,2,2"
    long = "w1 " * 2 * MAX_TOKENS
    (own_long,) = server.answer(long, truncate=True)["results"]
    cut = predict(server, [long], parameters={"truncate": True}).json()
    assert cut["predictions"] == [own_long["scores"]]


@pytest.mark.parametrize(
    ("instances", "parameters", "said"),
    [
        ([], {}, "instances: must not be empty"),
        (["w1", ""], {}, "instances[1]: must not be empty"),
        ([["w1"]], {}, "instances[0]: must be a text or an object"),
        ("w1", {}, "instances: must be a valid list"),
        (["w1"] * 10_001, {}, "instances: must have at most 10000 entries"),
        (["w1"] * 257, {}, "instances: 257 texts, at most 256"),
        (["w1"], {"top_p": 1}, "parameters.top_p: unknown field"),
        (["w1"], {"exit": {"rule": "nothing"}}, "parameters.exit: unknown rule 'nothing'"),
        (["w1"], {"timeout_ms": 0}, "parameters.timeout_ms: must be greater than 0"),
        (["w1"], {"priority": "now"}, "parameters.priority: must be"),
    ],
)
def test_what_cannot_be_had_is_refused(
    server: LiveServer, instances: Any, parameters: Any, said: str
) -> None:
    status, message = refusal(predict(server, instances, parameters=parameters))
    assert (status, message[: len(said)]) == (422, said)


def test_missing_models_keys_and_room_are_told_in_kserves_shape(
    start_server: StartServer, tmp_path: Path
) -> None:
    secret = make_key(tmp_path, "classify", rows_per_s=1)
    server = start_server(keys=tmp_path / "keys.json")
    assert refusal(predict(server, ["w1"]))[0] == 401
    server.http.headers["Authorization"] = f"Bearer {secret}"
    assert refusal(predict(server, ["w1"], "none")) == (404, "no model 'none'; served are tiny")
    answers = [predict(server, ["w1"])]
    while answers[-1].status_code == 200:
        answers.append(predict(server, ["w1"]))
    assert len(answers) > 1
    assert refusal(answers[-1])[0] == 429
    assert int(answers[-1].headers["retry-after"]) >= 1


def test_other_tasks_are_answered_or_refused(servers: LiveServer) -> None:
    (own,) = servers.answer("w1", model="multi_label")["results"]
    assert predict(servers, ["w1"], "multi_label").json()["predictions"] == [own["scores"]]
    (own,) = servers.answer("w1", model="regression")["results"]
    (name,) = LABELS["regression"]
    answer = predict(servers, ["w1"], "regression").json()
    assert answer["predictions"] == [{name: own["value"]}]
    status, message = refusal(predict(servers, ["w1"], "token"))
    assert (status, message[:19]) == (422, "token labels tokens")
