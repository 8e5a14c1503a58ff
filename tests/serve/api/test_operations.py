import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from serve.api import openapi
from serve.standalone import standalone_context
from tests.serve.api.conftest import StartServer
from tests.serve.support.live_server import LiveServer, Problem, config_of, serving, serving_bundles
from tests.support.tiny import WORDS

TEXTS = {"/metrics": "text/plain", "/v1/models/{model}/policy/events": "text/event-stream"}


def test_server_without_its_engine_is_live_but_not_ready(bundle_folder: Path) -> None:
    context = standalone_context(config_of(bundle_folder))
    with serving(context) as server:
        for path in ("/health/live", "/health/ready"):
            response = server.http.get(path)
            assert (response.status_code, response.json()) == (200, {"status": "ok"})
        assert server.metric("offramp_engine_up", model="tiny") == 1
        context.catalog.stop(drain_s=60)
        problem = Problem.of(server.http.get("/health/ready"))
        assert problem == (503, "unavailable", "no engine runs for tiny")
        assert server.http.get("/health/live").status_code == 200
        assert server.metric("offramp_engine_up", model="tiny") == 0
        assert server.refusal("w1")[:2] == (503, "unavailable")
        assert server.metric("offramp_rejected_total", model="tiny", code="unavailable") == 1


def test_exit_metrics_add_up_to_the_answers_given(start_server: StartServer) -> None:
    server = start_server()
    texts = [" ".join(WORDS[i : i + 3]) for i in range(20)]
    given: Counter[tuple[str, str]] = Counter()
    for choice in ("fast", "balanced", {"rule": "patience", "patience": 1}, {"rule": "never"}):
        for result in server.answer(texts, exit=choice)["results"]:
            given[str(result["exit"]["layer"]), result["exit"]["reason"]] += 1
    assert len(given) > 3

    layers = sum(int(layer) * count for (layer, _), count in given.items())
    assert server.metric("offramp_exits_total", model="tiny") == given.total()
    for (layer, reason), count in given.items():
        assert server.metric("offramp_exits_total", layer=layer, reason=reason) == count
    assert server.metric("offramp_exit_layer_count") == given.total()
    assert server.metric("offramp_exit_layer_sum") == layers
    assert server.metric("offramp_layers_run_total") == layers
    assert server.metric("offramp_layers_saved_total") == 4 * given.total() - layers
    for bound in range(1, 5):
        up_to = sum(count for (layer, _), count in given.items() if int(layer) <= bound)
        assert server.metric("offramp_exit_layer_bucket", le=f"{bound}.0") == up_to
    tokens = 4 * sum(len(text.split()) + 2 for text in texts)
    assert server.metric("offramp_input_tokens_total") == tokens
    assert server.metric("offramp_batch_rows_sum", layer="1") == given.total()
    assert server.metric("offramp_batch_tokens_total", layer="1") == tokens
    assert server.metric("offramp_queue_depth") == 0
    assert server.metric("offramp_queue_tokens") == 0
    for stage in ("tokenize", "queue", "segment", "judge"):
        assert server.metric("offramp_stage_duration_seconds_count", stage=stage) > 0


def test_metrics_page_is_prometheus_text_with_every_name_once(server: LiveServer) -> None:
    response = server.http.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=")
    names = [family.name for family in text_string_to_metric_families(response.text)]
    assert len(names) == len(set(names))
    assert all(name.startswith("offramp_") for name in names)


def test_live_thresholds_follow_the_policy_by_layer_where_each_exit_has_one(
    start_server: StartServer,
) -> None:
    server = start_server(active_exits={"tiny": [1, 3, 4]})
    assert server.metric("offramp_threshold", profile="balanced", rule="entropy") == 0.6
    each = {"rule": "confidence", "threshold": [0.9, 0.8, 0.7]}
    policy = {"default": {"rule": "voting", "votes": 2}, "profiles": {"each": each}}
    response = server.put_policy(policy)
    assert response.status_code == 200, response.text
    by_layer = [
        server.metric("offramp_threshold", profile="each", layer=layer) for layer in ("1", "3", "4")
    ]
    assert by_layer == each["threshold"]
    assert server.metric("offramp_threshold", profile="default", rule="voting", layer="") == 2
    assert server.metric("offramp_threshold", profile="balanced") == 0
    assert server.metric("offramp_policy_version", model="tiny") == 2


def test_docs_load_nothing_from_elsewhere(server: LiveServer) -> None:
    page = server.http.get("/docs")
    assert page.status_code == 200
    assets = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert any(asset.endswith(".js") for asset in assets)
    assert not re.search(r"https?://(?!www\.w3\.org)", page.text)
    for asset in assets:
        assert server.http.get(asset).status_code == 200


def operations(document: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (method, path): operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }


@pytest.fixture(scope="module")
def own_routes(bundle_folder: Path) -> dict[str, Any]:
    """Return the document of a server that speaks no other server's dialect."""
    with serving_bundles(bundle_folder, dialects=["v1"]) as only_own:
        document: dict[str, Any] = only_own.http.get("/openapi.json").json()
        return document


def test_openapi_describes_every_body(own_routes: dict[str, Any]) -> None:
    document = own_routes
    schemas = document["components"]["schemas"]
    assert "HTTPValidationError" not in schemas
    for (_, path), operation in operations(document).items():
        assert operation["summary"]
        assert operation["description"]
        for status, response in operation["responses"].items():
            text = TEXTS.get(path) if status == "200" else None
            if text:
                assert text in str(response["content"])
                continue
            schema = response["content"]["application/json"]["schema"]
            for one in schema.get("anyOf", [schema]):
                name = one["$ref"].rpartition("/")[2]
                assert (name == "ErrorBody") == (status != "200")
                assert schemas[name]["properties"]


def test_examples_of_the_documentation_work(start_server: StartServer) -> None:
    server = start_server()
    schemas = server.http.get("/openapi.json").json()["components"]["schemas"]
    examples = schemas["ClassifyRequest"]["examples"]
    assert {"profile": "fast"} in [example.get("exit") for example in examples]
    for example in examples:
        assert server.http.post("/v1/classify", json=example).status_code == 200
    for example in schemas["PolicyUpdate"]["examples"]:
        assert server.http.put("/v1/models/tiny/policy", json=example).status_code == 200
    [answer] = schemas["ClassifyResponse"]["examples"]
    given = server.answer("w1")
    # Nothing of this bundle is certified, so that its answers have a note.
    assert set(answer) == set(given) - {"note"}
    assert set(answer["results"][0]) == set(given["results"][0])
    assert set(answer["results"][0]["exit"]) == set(given["results"][0]["exit"])
    assert set(answer["timing"]) == set(given["timing"])
    [error] = schemas["ErrorBody"]["examples"]
    rule = {"rule": "entropy", "threshold": -1}
    assert server.classify("w1", exit=rule).json() == error


def test_document_is_made_once_for_all_who_ask_at_once(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    monkeypatch.setattr(
        openapi, "make_document", lambda routes: made.append(Event().wait(0.2)) or {}
    )
    server = start_server()
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(server.http.get, ["/openapi.json"] * 4))
    assert ({each.status_code for each in found}, len(made)) == ({200}, 1)
