"""A server whose queue is long by its own estimate."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tritonclient.grpc import InferenceServerClient

from serve.engine.engine import Engine
from tests.serve.http.grpc.conftest import texts
from tests.serve.support.bundles import rewrite_manifest
from tests.serve.support.ladders import BOLD, DECIDED, NEVER, SAFE, certificate, certify
from tests.serve.support.live_server import LiveServer, Problem, serving_grpc
from tests.serve.support.spoken import BODIES, KSERVE, OIP, SPEAK, TEI, VLLM
from tests.support.patience import until

SURE = {"target": {"max_disagreement": 0.01}}
OVERLOAD = {"queue_ms": 100, "target": {"max_disagreement": 0.03}}
POLICY = {
    "default": "sure",
    "profiles": {
        "sure": SURE,
        "exact": NEVER,
        "kept": {"exit": SURE, "degrade": False},
        "guard": {"exit": SURE, "flag": DECIDED},
    },
    "overload": OVERLOAD,
}
AT_BOLD = {
    "exit_rule": BOLD,
    "expected_layers": pytest.approx(2.0),
    "certificate": certificate("disagreement", 0.03, 0.02),
}


@pytest.fixture(scope="module")
def overloaded(
    bundle_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveServer]:
    """Serve a certified bundle; its policy is POLICY but for tests that change it."""
    folder = tmp_path_factory.mktemp("overloaded") / "tiny"
    shutil.copytree(bundle_folder, folder)
    certify(folder, "fp32")
    rewrite_manifest(folder, lambda manifest: manifest.update(policy=POLICY))
    with serving_grpc(folder) as server:
        yield server


@pytest.fixture
def long_queue(overloaded: LiveServer, monkeypatch: pytest.MonkeyPatch) -> LiveServer:
    """Return the server, which takes its queue for long and has moved already."""
    monkeypatch.setattr(Engine, "wait_s", lambda engine, client, priority: 1.0)
    until(lambda: overloaded.metric("offramp_overload_level", model="tiny") == 1)
    return overloaded


@contextmanager
def changed(server: LiveServer, **policy: Any) -> Iterator[None]:
    """Change the policy until the block is left."""
    assert server.put_policy({**POLICY, **policy}).status_code == 200
    try:
        yield
    finally:
        assert server.put_policy(POLICY).status_code == 200


def test_answers_say_that_they_are_degraded_and_what_is_certified_then(
    long_queue: LiveServer,
) -> None:
    before = long_queue.metric("offramp_degraded_answers_total", reason="overload")
    answer = long_queue.answer(["w1 w2", "w3"])
    assert {name: answer[name] for name in AT_BOLD} == AT_BOLD
    assert (answer["degraded"], answer["degraded_by"]) == (True, ["overload"])
    assert answer["results"] == long_queue.answer(["w1 w2", "w3"], exit=BOLD)["results"]
    after = long_queue.metric("offramp_degraded_answers_total", reason="overload")
    assert after - before == 2


@pytest.mark.parametrize(
    "fields",
    [
        {"exit": "exact"},
        {"exit": "kept"},
        {"exit": "guard"},
        {"exit": SURE},
        {"exit": SAFE},
        {"exit": SAFE, "degrade": False},
        {"degrade": False},
        {"flag": {"negative": 0.5}},
        {"degrade": {"max_disagreement": 0.01}},
    ],
)
def test_what_must_not_move_stays(long_queue: LiveServer, fields: dict[str, Any]) -> None:
    answer = long_queue.answer("w1 w2", **fields)
    assert "degraded" not in answer
    assert answer.get("exit_rule", SAFE) == SAFE


def test_a_request_may_let_its_own_target_move(long_queue: LiveServer) -> None:
    answer = long_queue.answer("w1", exit=SURE, degrade={"max_disagreement": 0.4})
    assert answer["exit_rule"] == BOLD


@pytest.mark.parametrize("path", ["/models/tiny", TEI, VLLM, KSERVE, OIP])
def test_every_dialect_tells_and_takes_the_header(long_queue: LiveServer, path: str) -> None:
    body = BODIES[path]
    moved = long_queue.http.post(path, json=body)
    assert moved.status_code == 200, moved.text
    assert moved.headers["x-offramp-degraded"] == "overload"
    assert json.loads(moved.headers["x-offramp-exit-rule"]) == BOLD
    kept = long_queue.http.post(path, json=body, headers={"X-Offramp-Degrade": "false"})
    assert kept.status_code == 200, kept.text
    assert "x-offramp-degraded" not in kept.headers
    wrong = long_queue.http.post(path, json=body, headers={"X-Offramp-Degrade": "{no"})
    assert wrong.status_code in (400, 422)
    assert "x-offramp-degrade: must be false, or JSON such as" in wrong.text


def test_the_open_inference_protocol_has_parameters_for_it(long_queue: LiveServer) -> None:
    def parameters(**asked: Any) -> dict[str, Any]:
        response = long_queue.http.post(OIP, json=SPEAK[OIP](asked, "w1"))
        assert response.status_code == 200, response.text
        found: dict[str, Any] = response.json()["parameters"]
        return found

    assert parameters()["degraded"] is True
    assert parameters()["degraded_by"] == "overload"
    assert "degraded" not in parameters(degrade=False)
    assert "degraded" not in parameters(degrade='{"max_disagreement": 0.01}')


def test_a_rule_has_no_place_to_move_from(long_queue: LiveServer) -> None:
    refused = long_queue.refusal("w1", exit=SAFE, degrade={"max_disagreement": 0.03})
    assert refused.status == 422
    assert "a rule has no place on the ladder" in refused.message
    refused = long_queue.refusal("w1", degrade=True)
    assert "degrade: must be false, or how far to go" in refused.message


def test_where_requests_choose_nothing_they_do_not_choose_this(long_queue: LiveServer) -> None:
    with changed(long_queue, limits={"overrides": "none"}):
        refused = long_queue.refusal("w1", degrade=False)
    assert refused.status == 403
    assert "degrade: the live policy lets no request choose it" in refused.message


def test_a_policy_without_overload_gives_nothing_up(long_queue: LiveServer) -> None:
    with changed(long_queue, overload=None):
        answer = long_queue.answer("w1")
        assert "degraded" not in answer
        assert answer["exit_rule"] == SAFE
        assert long_queue.metric("offramp_overload_level", model="tiny") == 0


def test_the_level_is_also_that_of_a_candidate(long_queue: LiveServer) -> None:
    candidate = {"patch": {"overload": OVERLOAD}, "steps": [100], "bounds": {"errors": 0.5}}
    with changed(long_queue, overload=None):
        started = long_queue.http.post("/v1/models/tiny/policy/rollout", json=candidate)
        assert started.status_code == 200
        assert long_queue.answer("w1")["degraded_by"] == ["overload"]
        assert long_queue.metric("offramp_overload_level", model="tiny") == 1


def test_a_policy_that_could_move_nothing_is_refused(overloaded: LiveServer) -> None:
    policy = {**POLICY, "overload": {**OVERLOAD, "target": {"max_disagreement": 0.001}}}
    refused = Problem.of(overloaded.put_policy(policy))
    assert (refused.status, refused.code) == (422, "invalid_rule")
    assert "overload.target: there is no faster rule" in refused.message


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"timeout_ms": 1900}, 504),
        ({"timeout_ms": 2100}, 200),
        ({}, 200),
        ({"timeout_ms": 1900, "exit": "exact"}, 200),  # never moves, and waits as without
    ],
)
def test_a_wait_of_more_than_half_of_the_timeout_is_refused_at_once(
    long_queue: LiveServer, fields: dict[str, Any], status: int
) -> None:
    body = {"inputs": "w1", **fields}
    found = long_queue.http.post("/v1/classify", json=body)
    assert found.status_code == status
    if status != 200:
        assert Problem.of(found).code == "deadline_exceeded"
    with changed(long_queue, overload={**OVERLOAD, "deadline": "keep"}):
        assert long_queue.http.post("/v1/classify", json=body).status_code == 200


def test_the_protocol_over_grpc_has_them_too(long_queue: LiveServer) -> None:
    with InferenceServerClient(long_queue.grpc_address) as client:
        moved = client.infer("tiny", [texts(["w1"])]).get_response().parameters
        assert moved["degraded"].bool_param is True
        assert moved["degraded_by"].string_param == "overload"
        kept = client.infer("tiny", [texts(["w1"])], parameters={"degrade": False})
        assert "degraded" not in kept.get_response().parameters


def test_audits_count_what_has_moved_apart_from_the_profiles(long_queue: LiveServer) -> None:
    def drawn(profile: str) -> float:
        return long_queue.metric("offramp_audits_total", profile=profile)

    with changed(long_queue, audit={"share": 1}):
        moved, kept = drawn("(degraded)"), drawn("sure")
        long_queue.answer(["w1", "w2", "w3"])
        until(lambda: drawn("(degraded)") == moved + 3)
        long_queue.answer(["w1", "w2"], degrade=False)
        until(lambda: drawn("sure") == kept + 2)
        assert drawn("(degraded)") == moved + 3
