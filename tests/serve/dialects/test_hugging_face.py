"""Hugging Face's own client against a running server."""

import numpy as np
import pytest
from huggingface_hub import InferenceClient

from tests.serve.support.live_server import LiveServer

NEVER = '{"rule": "never"}'


def client(server: LiveServer, path: str = "", **headers: str) -> InferenceClient:
    return InferenceClient(f"http://127.0.0.1:{server.port}{path}", headers=headers)


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


def test_texts_pairs_and_the_dial_go_through_parameters(server: LiveServer) -> None:
    inputs = ["w1", {"text": "w2", "text_pair": "w3"}]
    rule = {"rule": "layer", "layer": 2}
    body = {"inputs": inputs, "parameters": {"exit": rule}}
    options = {"wait_for_model": True, "use_cache": False}
    found = server.http.post("/", json={**body, "options": options})
    own = server.answer(inputs, exit=rule)["results"]
    assert [{e["label"]: e["score"] for e in row} for row in found.json()] == [
        result["scores"] for result in own
    ]
    assert found.headers["x-offramp-exit-layer"] == "2,2"
    assert found.headers["x-offramp-exit-reason"] == "layer,layer"


@pytest.mark.parametrize(
    "fields",
    [
        {"parameters": {"top_k": 1}},
        {"options": {"wait_for_model": True}},
        {"parameters": {"exit": {"rule": "layer", "layer": 2}}, "options": {"use_cache": False}},
    ],
)
def test_sagemakers_route_takes_the_same_and_answers_a_single_text_as_a_pipeline(
    server: LiveServer, fields: dict[str, object]
) -> None:
    for inputs in ("w1", ["w1", {"text": "w2", "text_pair": "w3"}]):
        own, found = (
            server.http.post(path, json={"inputs": inputs, **fields})
            for path in ("/", "/invocations")
        )
        assert found.json() == (own.json()[0] if inputs == "w1" else own.json())
        assert found.headers["x-offramp-exit-layer"] == own.headers["x-offramp-exit-layer"]
