"""Hugging Face's own client against a running server."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from huggingface_hub import InferenceClient
from huggingface_hub.errors import HfHubHTTPError

from tests.serve.api.conftest import StartServer
from tests.serve.support.live_server import LiveServer
from tests.serve.support.openapi_fuzz import make_key

NEVER = '{"rule": "never"}'


def client(server: LiveServer, path: str = "", **headers: str) -> InferenceClient:
    return InferenceClient(f"http://127.0.0.1:{server.port}{path}", headers=headers)


def refusal(call: Any, *arguments: Any, **options: Any) -> tuple[int, str]:
    with pytest.raises(HfHubHTTPError) as caught:
        call(*arguments, **options)
    response = caught.value.response
    assert set(response.json()) == {"error"}
    return response.status_code, response.json()["error"]


@pytest.mark.parametrize("path", ["", "/", "/models/tiny"])
def test_labels_and_scores_are_those_of_our_own_route(server: LiveServer, path: str) -> None:
    found = client(server, path).text_classification("w1 w2 w3")
    (own,) = server.answer("w1 w2 w3")["results"]
    assert {each.label: each.score for each in found} == own["scores"]
    assert found[0].label == own["label"]


def test_parameters_of_the_client_are_heeded(server: LiveServer) -> None:
    ask = client(server).text_classification
    (own,) = server.answer("w1", exit={"rule": "never"}, **{"return": ["logits"]})["results"]
    never = client(server, **{"X-Offramp-Exit": NEVER}).text_classification
    assert [each.label for each in ask("w1", top_k=1)] == [ask("w1")[0].label]
    logits = np.array(own["logits"], np.float32)
    for function, scores in (("none", logits), ("sigmoid", 1 / (1 + np.exp(-logits)))):
        found = never("w1", function_to_apply=function)
        assert [each.score for each in found] == pytest.approx(sorted(scores)[::-1], abs=1e-5)


def test_texts_pairs_and_the_dial_go_through_parameters_or_headers(server: LiveServer) -> None:
    inputs = ["w1", {"text": "w2", "text_pair": "w3"}]
    rule = {"rule": "layer", "layer": 2}
    by_field = server.http.post("/", json={"inputs": inputs, "parameters": {"exit": rule}})
    by_header = server.http.post(
        "/", json={"inputs": inputs}, headers={"X-Offramp-Exit": json.dumps(rule)}
    )
    own = server.answer(inputs, exit=rule)["results"]
    for response in (by_field, by_header):
        assert [{e["label"]: e["score"] for e in row} for row in response.json()] == [
            result["scores"] for result in own
        ]
        assert response.headers["x-offramp-exit-layer"] == "2,2"
        assert response.headers["x-offramp-exit-reason"] == "layer,layer"


def test_what_is_wrong_is_said_in_the_clients_words(server: LiveServer) -> None:
    ask = client(server).text_classification
    assert refusal(ask, "") == (422, "inputs: must not be empty")
    assert refusal(ask, "w1", top_k=0)[0] == 422
    assert refusal(client(server, "/models/none").text_classification, "w1")[0] == 404
    status, message = refusal(
        client(server, **{"X-Offramp-Exit": '{"rule": "layer", "layer": 9}'}).text_classification,
        "w1",
    )
    assert (status, message[:20]) == (422, "layer 9 has no exit:")
    both = {"inputs": "w1", "parameters": {"exit": "fast"}}
    response = server.http.post("/", json=both, headers={"X-Offramp-Exit": "fast"})
    assert response.json()["error"] == (
        "exit: is in the body and in the header x-offramp-exit; send one"
    )
    assert (
        refusal(client(server).token_classification, "w1", aggregation_strategy="simple")[0] == 422
    )


def test_a_missing_key_and_overload_reach_the_client(
    start_server: StartServer, tmp_path: Path
) -> None:
    secret = make_key(tmp_path, "classify", rows_per_s=1)
    server = start_server(keys=tmp_path / "keys.json")
    assert refusal(client(server).text_classification, "w1")[0] == 401
    known = InferenceClient(f"http://127.0.0.1:{server.port}", token=secret)
    assert known.text_classification("w1")
    body = {"inputs": ["w1"] * 9}  # all that ten seconds allow
    server.http.post("/", json=body, headers={"Authorization": f"Bearer {secret}"})
    asked = server.http.post(
        "/", json={"inputs": ["w1"] * 9}, headers={"Authorization": f"Bearer {secret}"}
    )
    assert (asked.status_code, set(asked.json())) == (429, {"error"})
    with pytest.raises(HfHubHTTPError, match="429"):
        for _ in range(3):
            known.text_classification("w1")
