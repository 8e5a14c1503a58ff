"""Texts that leave in the small model in front, seen by clients and operators."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from serve.engine.engine import Engine
from tests.serve.api.test_tracing import recorded
from tests.serve.support.bundles import rewrite_manifest
from tests.serve.support.ladders import NEVER, certificate, certify, rung
from tests.serve.support.live_server import LiveServer, serving_bundles
from tests.serve.support.small_models import NUM_SMALL_EXITS, write_cascade
from tests.serve.support.task_bundles import EXITS
from tests.support.patience import until

DEPTH = EXITS[-1]
EXITS_ALONE = {"rule": "confidence", "threshold": 0.9, "fallback": "last"}
RULE = {**EXITS_ALONE, "small": {"threshold": 0.0}}  # all leave at the small model's first exit
GOES_ON = {**EXITS_ALONE, "small": {"threshold": 1.0}}
FLAG = {"positive": 0.5}
PATH = "/v1/models/tiny/policy"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certified(write_cascade(tmp_path_factory.mktemp("cascade")))


def certified(folder: Path) -> Path:
    small = json.loads((folder / "manifest.json").read_bytes())["small"]
    none, strict, loose = (0,) * NUM_SMALL_EXITS, 0.01, 0.05
    rungs = [
        rung(NEVER, (*none, 0, 0, 1), 0),
        rung(EXITS_ALONE, (*none, 0, 0.5, 0.5), 0.006, certificate("disagreement", strict, 0.006)),
        rung(RULE, (0.9, 0, 0, 0, 0, 0.1), 0.03, certificate("disagreement", loose, 0.03)),
    ]
    shape = {"exits": EXITS, "temperatures": [1.0] * len(EXITS), "small": small}
    return certify(folder, "fp32", **shape, rungs=rungs, decisions=[], metric=None)


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[LiveServer]:
    with serving_bundles(folder) as live:
        yield live


@pytest.fixture
def changed(server: LiveServer) -> Iterator[LiveServer]:
    """Take the policy back that a test puts."""
    yield server
    assert server.put_policy({"default": NEVER}).status_code == 200


def exits(answer: dict[str, Any]) -> list[tuple[int, int | None]]:
    """Return the layer where each text left, and that in the small model."""
    said = [result["exit"] for result in answer["results"]]
    return [(each["layer"], each.get("small_layer")) for each in said]


def test_answers_say_where_in_the_small_model_a_text_left(server: LiveServer) -> None:
    assert exits(server.answer("w1 w2", exit=RULE)) == [(0, 1)]
    (found,) = server.answer("w1 w2", exit=GOES_ON, **{"return": ["exits"]})["results"]
    said = [(each["layer"], each.get("small_layer")) for each in found["exits"]]
    assert said[:NUM_SMALL_EXITS] == [(0, layer) for layer in EXITS]
    assert said[NUM_SMALL_EXITS] == (1, None)


def test_the_model_names_its_small_one(server: LiveServer) -> None:
    small = server.http.get("/v1/models/tiny").json()["small"]
    assert small == {"name": "little", "exits": list(EXITS), "layer_cost": 0.25}


def test_targets_may_use_it_and_rules_of_requests_that_do_not_say_so_never_do(
    server: LiveServer,
) -> None:
    answer = server.answer("w1 w2", exit={"target": {"max_disagreement": 0.05}})
    assert (exits(answer), answer["exit_rule"]) == ([(0, 1)], RULE)
    # 0.9 at a quarter of a layer, and 0.1 at all of both models.
    assert answer["expected_layers"] == pytest.approx(0.9 * 0.25 + 0.1 * (DEPTH * 0.25 + DEPTH))
    for choice in (EXITS_ALONE, NEVER, {**RULE, "min_layer": 1}):
        assert exits(server.answer("w1 w2", exit=choice))[0][0] >= 1


def test_limits_and_flags_keep_it_out(changed: LiveServer) -> None:
    policy = {"default": RULE, "limits": {"min_layer": 1}}
    assert changed.put_policy(policy).status_code == 200
    assert exits(changed.answer("w1"))[0][0] >= 1
    assert changed.put_policy({"default": RULE}).status_code == 200
    assert exits(changed.answer("w1")) == [(0, 1)]
    target = {"target": {"max_disagreement": 0.05}}
    for asked in ({}, {"exit": RULE}, {"exit": target}):
        assert exits(changed.answer("w1", flag=FLAG, **asked))[0][0] >= 1
    refusal = changed.refusal("w1", exit={"rule": "decision", "leave_above": FLAG, "small": 0.5})
    assert "decided by exits alone" in refusal.message


def test_every_dialect_says_layer_0(changed: LiveServer) -> None:
    assert changed.put_policy({"default": RULE}).status_code == 200
    for path, body in (
        ("/models/tiny", {"inputs": "w1"}),
        ("/predict", {"inputs": "w1"}),
        ("/classify", {"input": "w1"}),
        ("/v1/models/tiny:predict", {"instances": ["w1"]}),
    ):
        answer = changed.http.post(path, json=body)
        assert (answer.status_code, answer.headers["X-Offramp-Exit-Layer"]) == (200, "0"), path
    tensor = {"name": "TEXT", "shape": [1], "datatype": "BYTES", "data": ["w1"]}
    answer = changed.http.post("/v2/models/tiny/infer", json={"inputs": [tensor]})
    outputs = {each["name"]: each["data"] for each in answer.json()["outputs"]}
    assert outputs["exit_layer"] == [0]


def test_each_stage_counts_its_own(server: LiveServer) -> None:
    def counted(model: str, layer: str) -> float:
        return server.metric("offramp_exits_total", model=model, layer=layer)

    def now() -> list[float]:
        return [counted("tiny", "0"), counted("tiny/small", "1"), counted("tiny/small", "4")]

    before = now()
    server.answer(["w1", "w2", "w3"], exit=RULE)
    server.answer(["w1", "w2"], exit=GOES_ON)
    assert [after - then for after, then in zip(now(), before, strict=True)] == [3, 3, 0]
    assert server.metric("offramp_segment_duration_seconds_count", model="tiny/small") > 0


def test_traces_have_the_runs_of_both(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with recorded(monkeypatch) as spans, serving_bundles(folder) as server:
        server.answer("w1", exit=GOES_ON)
        server.answer("w1", exit=RULE)
    ran = [span.attributes or {} for span in spans["segment"]]
    own = [(each["offramp.layer"], each.get("offramp.small_layer")) for each in ran]
    assert own[0] == (0, 1)
    assert (0, DEPTH) in own
    assert own[-1] == (0, 1)
    assert any(layer >= 1 for layer, _ in own)
    assert len(spans["queue"]) == 2


def test_audits_compare_what_left_there_with_full_depth(folder: Path) -> None:
    with serving_bundles(folder) as server:
        policy = {"default": RULE, "audit": {"share": 1}}
        assert server.put_policy(policy).status_code == 200
        full = server.answer("w1 w2", exit=NEVER)["results"][0]["label"]
        small = server.answer("w1 w2")["results"][0]["label"]

        def audited() -> dict[str, Any]:
            report = server.http.get("/v1/models/tiny/quality").json()
            found: dict[str, Any] = report["profiles"]["default"]["exits"]
            return found

        until(lambda: "0" in audited() and audited()["0"]["audits"] == 1)
        assert audited()["0"]["differences"] == int(full != small)
        # What the small model says of a text is not kept, so the dry run has no figures of it.
        found = server.http.post(f"{PATH}/dry-run", json={"policy": {"default": NEVER}}).json()
        sides = found["profiles"]["default"]
        assert "small model" in sides["before"]["live"]["problem"]
        assert sides["after"]["live"]["layers"] == DEPTH


def test_arms_of_a_rollout_count_what_left_there(folder: Path) -> None:
    start = {"patch": {"default": RULE}, "steps": [50], "hold_s": 3600, "bounds": {"layers": 0.5}}
    with serving_bundles(folder) as server:
        assert server.http.post(f"{PATH}/rollout", json=start).status_code == 200
        left: dict[str, list[int]] = {"live": [], "candidate": []}
        for client in range(12):
            body, sticky = {"inputs": "w1"}, {"X-Offramp-Sticky": f"client {client}"}
            answer = server.http.post("/v1/classify", json=body, headers=sticky).json()
            left[answer["arm"]] += [layer for layer, _ in exits(answer)]
        assert ({*left["live"]}, {*left["candidate"]}) == ({DEPTH}, {0})


def test_overload_moves_to_rungs_of_the_cascade(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faster = {"queue_ms": 100, "target": {"max_disagreement": 0.05}}
    policy = {"default": {"target": {"max_disagreement": 0.01}}, "overload": faster}
    with serving_bundles(folder) as server:
        assert server.put_policy(policy).status_code == 200
        assert server.answer("w1")["exit_rule"] == EXITS_ALONE
        monkeypatch.setattr(Engine, "wait_s", lambda engine, client, priority: 1.0)
        answer = server.answer("w1")
        assert (answer["exit_rule"], exits(answer)) == (RULE, [(0, 1)])


def test_a_model_gets_a_small_one_and_loses_it_while_it_is_served(
    folder: Path, tmp_path: Path
) -> None:
    tiny = Path(shutil.copytree(folder, tmp_path / "tiny"))
    manifest = (tiny / "manifest.json").read_bytes()

    def load(server: LiveServer) -> Any:
        return server.http.post("/v1/models/tiny/load", json={"force": True})

    def without(document: dict[str, Any]) -> None:
        document.pop("small")

    rewrite_manifest(tiny, without)
    with serving_bundles(tiny, model_repository=tmp_path) as server:
        assert server.refusal("w1", exit=RULE).message.startswith("small: this model has no small")
        (tiny / "manifest.json").write_bytes(manifest)
        assert load(server).status_code == 200
        assert exits(server.answer("w1", exit=RULE)) == [(0, 1)]
        assert server.put_policy({"default": RULE}).status_code == 200
        rewrite_manifest(tiny, without)
        # A policy that no model can follow any more is ignored, as any other.
        assert load(server).status_code == 200
        assert exits(server.answer("w1")) == [(DEPTH, None)]
        assert server.refusal("w1", exit=RULE).message.startswith("small: this model has no small")
