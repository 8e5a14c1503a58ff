"""Which dialects a server speaks, and what all of them have in common."""

import json
from pathlib import Path
from typing import Any

import pytest

from serve.bundle.loader import MANIFEST, sha256_of
from serve.dialects.registry import choose_dialects
from serve.errors import InvalidRequest
from tests.serve.support.live_server import LiveServer, Problem, serving_bundles

LONG = "w1 " * 200
TEXT = {"name": "TEXT", "shape": [1], "datatype": "BYTES"}
FLAG = {"flag": {"negative": 0.5}}
LITELLM = {"texts": ["w1"], "input_type": "request", "additional_provider_specific_params": FLAG}


def test_only_the_chosen_dialects_are_answered(bundle_folder: Path) -> None:
    with serving_bundles(bundle_folder, dialects=["v1"]) as only_own:
        assert only_own.classify("w1").status_code == 200
        assert Problem.of(only_own.http.post("/", json={"inputs": "w1"})).status == 405
    with serving_bundles(bundle_folder, dialects=["hf"]) as only_other:
        assert only_other.classify("w1").status_code == 404
        assert only_other.http.post("/", json={"inputs": "w1"}).status_code == 200
        assert only_other.http.get("/v1/models").status_code == 200


@pytest.mark.parametrize("names", [["hf", "nothing"], ["all", "hf"], []])
def test_unknown_dialects_are_refused(names: list[str]) -> None:
    with pytest.raises(InvalidRequest, match="or all"):
        choose_dialects(names)


def test_headers_ask_our_own_route_too(server: LiveServer) -> None:
    target = {"target": {"speedup": 1}}
    rules = ({"rule": "layer", "layer": 2}, target, "exact")
    for rule in rules:
        text = rule if isinstance(rule, str) else json.dumps(rule)
        headers = {"X-Offramp-Exit": text, "X-Offramp-Timeout-Ms": "9000"}
        by_header = server.http.post("/v1/classify", json={"inputs": "w1"}, headers=headers)
        own = server.classify("w1", exit=rule, timeout_ms=9000)
        assert by_header.status_code == own.status_code
        key = "results" if own.is_success else "error"
        assert by_header.json()[key] == own.json()[key]


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({"X-Offramp-Exit": "{nothing"}, "x-offramp-exit: must be the name of a profile, or JSON"),
        ({"X-Offramp-Exit": "no such"}, "exit: a name must be 1 to 64"),
        ({"X-Offramp-Timeout-Ms": "soon"}, "x-offramp-timeout-ms: must be a number, not 'soon'"),
        ({"X-Offramp-Timeout-Ms": "0"}, "timeout_ms: must be greater than 0"),
        ({"X-Offramp-Timeout-Ms": "nan"}, "timeout_ms: must be"),
        ({"X-Offramp-Priority": "now"}, "priority: must be"),
        ({"X-Offramp-Timeout-Ms": "1_0"}, "x-offramp-timeout-ms: must be a number"),
        (
            {"X-Offramp-Exit": '{"rule": "never", "rule": "layer"}'},
            "x-offramp-exit: must be the name of a profile, or JSON",
        ),
    ],
)
def test_headers_that_cannot_be_read_are_refused(
    server: LiveServer, headers: dict[str, str], said: str
) -> None:
    response = server.http.post("/v1/classify", json={"inputs": "w1"}, headers=headers)
    problem = Problem.of(response)
    assert (problem.status, problem.message[: len(said)]) == (422, said)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/classify", {"inputs": "w1"}),
        ("/", {"inputs": "w1"}),
        ("/models/tiny", {"inputs": "w1"}),
        ("/predict", {"inputs": "w1"}),
        ("/classify", {"input": "w1"}),
        ("/v1/models/tiny:predict", {"instances": ["w1"]}),
        ("/v2/models/tiny/infer", {"inputs": [{**TEXT, "data": ["w1"]}]}),
        ("/v2/models/tiny/versions/1/infer", {"inputs": [{**TEXT, "data": ["w1"]}]}),
        ("/api/v1/text/contents", {"contents": ["w1"], "detector_params": FLAG}),
        ("/beta/litellm_basic_guardrail_api", LITELLM),
    ],
)
def test_every_answer_that_classifies_names_its_bundle(
    server: LiveServer, bundle_folder: Path, path: str, body: Any
) -> None:
    version = sha256_of(bundle_folder / MANIFEST)[:12]
    answer = server.http.post(path, json=body)
    assert answer.status_code == 200, answer.text
    assert answer.headers.get_list("x-offramp-bundle") == [version]
    assert "x-offramp-replica" not in answer.headers  # there is one only
    assert "x-offramp-bundle" not in server.http.post(path, json={}).headers


def test_models_are_described_with_their_bundles(server: LiveServer, bundle_folder: Path) -> None:
    sha256 = sha256_of(bundle_folder / MANIFEST)
    described = server.http.get("/v2/models/tiny").json()
    assert described["properties"] == {"bundle": sha256}
    config = server.http.get("/v2/models/tiny/config").json()
    assert config["parameters"] == {"bundle": {"string_value": sha256}}
    assert server.metric("offramp_model_info", bundle=sha256[:12], node="") == 1
    assert server.metric("offramp_replicas_wanted") == 1
    assert server.metric("offramp_replicas_running") == 1


def test_a_dial_that_comes_twice_is_refused(server: LiveServer) -> None:
    headers = [("X-Offramp-Exit", "fast"), ("X-Offramp-Exit", "exact")]
    problem = Problem.of(server.http.post("/v1/classify", json={"inputs": "w1"}, headers=headers))
    assert problem.status == 422
    assert problem.message == "x-offramp-exit: comes more than once; send one"


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/v1/classify", {"inputs": [LONG]}, 'inputs[0] has*"truncate": true'),
        ("/", {"inputs": [LONG]}, 'inputs[0] has*"parameters": {"truncation": true}'),
        ("/predict", {"inputs": [[LONG]]}, 'inputs[0] has*"truncate": true'),
        ("/classify", {"input": [LONG]}, 'input[0] has*"truncate_prompt_tokens": -1'),
        (
            "/v1/models/tiny:predict",
            {"instances": [LONG]},
            'instances[0] has*"parameters": {"truncate": true}',
        ),
        (
            "/v2/models/tiny/infer",
            {"inputs": [{"name": "TEXT", "shape": [1], "datatype": "BYTES", "data": [LONG]}]},
            'inputs[0] has*"parameters": {"truncate": true}',
        ),
        (
            "/api/v1/text/contents",
            {"contents": [LONG], "detector_params": {"flag": {"negative": 0.5}}},
            'contents[0] has*"windows": {"stride": 64, "combine": "any"}',
        ),
    ],
)
def test_messages_name_what_the_dialect_calls_it(
    server: LiveServer, path: str, body: Any, said: str
) -> None:
    response = server.http.post(path, json=body)
    first, last = said.split("*")
    text = response.text.replace("\\", "")
    assert response.status_code in (400, 413, 422)
    assert first in text, text
    assert last in text, text
