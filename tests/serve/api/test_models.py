from collections.abc import Callable
from pathlib import Path

import pytest

from serve.bundle.loader import MANIFEST, sha256_of
from serve.policy.served_ladder import ServedLadder
from serve.rules import rules_for
from serve.rules.traits import Traits
from tests.serve.api.conftest import StartServer
from tests.serve.support.bundles import rewrite_manifest
from tests.serve.support.live_server import FULL_DEPTH, LiveServer
from tests.support.tiny import DEPTH, LABELS, MAX_TOKENS, SPECIAL, WORDS


def test_model_is_described_completely(server: LiveServer, bundle_folder: Path) -> None:
    described = server.http.get("/v1/models/tiny").json()
    costs = described.pop("costs")
    assert described.pop("ladder")["certified"] is False
    assert [cost.pop("layer") for cost in costs] == list(range(1, DEPTH + 1))
    for cost in costs:
        assert set(cost) == {"fixed_ms", "per_token_us", "per_token_pair_ns", "example_ms"}
        assert min(cost.values()) >= 0 < cost["example_ms"]
    assert described == {
        "name": "tiny",
        "ready": True,
        "task": "single_label",
        "labels": list(LABELS),
        "pairs": True,
        "rules": rules_for(Traits(tuple(range(1, DEPTH + 1)), LABELS)),
        "layers": DEPTH,
        "exits": [{"layer": layer, "temperature": 1.0} for layer in range(1, DEPTH + 1)],
        "table": None,
        "small": None,
        "device": "cpu",
        "precision": "fp32",
        "precisions": ["fp32", "int8"],
        "max_tokens": MAX_TOKENS,
        "vocab_size": len(SPECIAL) + len(WORDS),
        "token_types": 2,
        "policy_version": 1,
        "score_scale": "raw",
        "bundle": sha256_of(bundle_folder / MANIFEST),
        "calibration": None,
        "calibrated_on": None,
    }


def test_model_that_is_described_again_has_its_rules_worked_out_already(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = server.http.get("/v1/models/tiny").json()
    monkeypatch.setattr(ServedLadder, "rungs", None)
    assert server.http.get("/v1/models/tiny").json()["ladder"] == first["ladder"]


def test_list_has_the_descriptions_of_all_models(
    start_server: StartServer, bundle_copy: Callable[..., Path]
) -> None:
    server = start_server(bundle_copy("one"), bundle_copy("two"))
    listed = server.http.get("/v1/models").json()
    assert [model["name"] for model in listed["models"]] == ["one", "two"]
    for model in listed["models"]:
        assert server.http.get(f"/v1/models/{model['name']}").json() == model


def test_model_with_an_odd_folder_name_is_served_under_it(
    start_server: StartServer, bundle_copy: Callable[..., Path]
) -> None:
    server = start_server(bundle_copy("Größe 1+1 %41"))
    path = "/v1/models/Gr%C3%B6%C3%9Fe%201+1%20%2541"
    assert server.http.get(path).json()["name"] == "Größe 1+1 %41"
    assert server.http.put(f"{path}/policy", json=FULL_DEPTH).status_code == 200
    assert server.answer("w1", model="Größe 1+1 %41")["policy_version"] == 2
    assert server.metric("offramp_policy_version", model="Größe 1+1 %41") == 2


def test_temperatures_and_calibration_are_shown_with_their_precision(
    start_server: StartServer, bundle_copy: Callable[..., Path]
) -> None:
    folder = bundle_copy()
    figures = {
        "data": {"name": "made up", "rows": 10, "sha256": "0" * 64},
        "exits": [{"layer": 1, "accuracy": 0.5}],
    }

    def heat(manifest: dict) -> None:
        manifest["exits"][0]["temperature"] = 2.5

    rewrite_manifest(folder, heat, {"variants": {"int8": figures}})
    for precision in ("fp32", "int8"):
        model = start_server(folder, precision=precision).http.get("/v1/models/copy").json()
        assert model["exits"][0] == {"layer": 1, "temperature": 2.5}
        assert model["calibrated_on"] == "int8"
        shown = model["calibration"]
        assert shown["data"] == figures["data"]
        assert figures["exits"][0].items() <= shown["exits"][0].items()


def test_a_served_model_has_its_active_exits_only(start_server: StartServer) -> None:
    server = start_server(active_exits={"tiny": [1, 3, 4]})
    model = server.http.get("/v1/models/tiny").json()
    assert [e["layer"] for e in model["exits"]] == [1, 3, 4]
    answered = server.classify("w1 w2", exit={"rule": "layer", "layer": 3})
    assert answered.json()["results"][0]["exit"]["layer"] == 3
    refused = server.classify("w1 w2", exit={"rule": "layer", "layer": 2})
    assert refused.status_code == 422
    assert "the model has exits at 1, 3, 4" in refused.json()["error"]["message"]
