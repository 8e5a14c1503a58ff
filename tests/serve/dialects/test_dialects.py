"""Which dialects a server speaks, and what all of them have in common."""

import json
from pathlib import Path
from typing import Any

import pytest

from serve.bundle.loader import MANIFEST, sha256_of
from serve.dialects.registry import choose_dialects
from serve.errors import InvalidRequest
from tests.serve.support.live_server import LiveServer, Problem, serving_bundles
from tests.serve.support.spoken import BODIES


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
    with pytest.raises(InvalidRequest):
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


@pytest.mark.parametrize(("path", "body"), BODIES.items())
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
