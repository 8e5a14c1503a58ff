"""Texts that leave at layer 0: by the model's table, or in the small model in front of it."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from serve.bundle.loader import load_bundle
from serve.engine.engine import Engine
from serve.rules.signals import softmax
from tests.serve.api.test_tracing import recorded
from tests.serve.support.bundles import rewrite_manifest
from tests.serve.support.ladders import NEVER, certificate, certify, rung
from tests.serve.support.live_server import LiveServer, serving_bundles
from tests.serve.support.small_models import NUM_SMALL_EXITS, write_cascade
from tests.serve.support.spoken import KSERVE, OIP, SPEAK, TEI, VLLM, layer_of
from tests.serve.support.tables import SURE_TEXT, SURE_WORD, UNSURE_TEXT, add_table
from tests.serve.support.task_bundles import EXITS
from tests.support.patience import until
from tests.support.tiny import DEPTH, WORDS

ENTROPY = {"rule": "entropy", "threshold": 0.6}
BY_TABLE = {**ENTROPY, "table": 0.8}
CONFIDENCE = {"rule": "confidence", "threshold": 0.9, "fallback": "last"}
IN_SMALL = {**CONFIDENCE, "small": {"threshold": 0.0}}  # all leave at its first exit
GOES_ON = {**CONFIDENCE, "small": {"threshold": 1.0}}
LONG = " ".join([SURE_WORD] * 20 + list(WORDS[:100]))
FLAG = {"positive": 0.5}
PATH = "/v1/models/tiny/policy"


class Front(NamedTuple):
    """A bundle, a rule by which a text leaves at layer 0, and the same rule without layer 0."""

    folder: Path
    rule: dict[str, Any]
    alone: dict[str, Any]
    text: str = "w1 w2"


def with_table(bundle_folder: Path, folder: Path) -> Front:
    copy = Path(shutil.copytree(bundle_folder, folder / "tiny"))
    return Front(add_table(copy), BY_TABLE, ENTROPY, SURE_TEXT)


def with_small(bundle_folder: Path, folder: Path) -> Front:
    """Return a cascade that is certified with its small model and without."""
    cascade = write_cascade(folder)
    none, strict, loose = (0,) * NUM_SMALL_EXITS, 0.01, 0.05
    rungs = [
        rung(NEVER, (*none, 0, 0, 1), 0),
        rung(CONFIDENCE, (*none, 0, 0.5, 0.5), 0.006, certificate("disagreement", strict, 0.006)),
        rung(IN_SMALL, (0.9, 0, 0, 0, 0, 0.1), 0.03, certificate("disagreement", loose, 0.03)),
    ]
    small = json.loads((cascade / "manifest.json").read_bytes())["small"]
    shape = {"exits": EXITS, "temperatures": [1.0] * len(EXITS), "small": small}
    certify(cascade, "fp32", **shape, rungs=rungs, decisions=[], metric=None)
    return Front(cascade, IN_SMALL, CONFIDENCE)


TABLE = pytest.mark.parametrize("front", [with_table], indirect=True)
SMALL = pytest.mark.parametrize("front", [with_small], indirect=True)


@pytest.fixture(scope="module", params=[with_table, with_small])
def front(
    request: pytest.FixtureRequest, bundle_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Front:
    made: Front = request.param(bundle_folder, tmp_path_factory.mktemp("front"))
    return made


@pytest.fixture(scope="module")
def server(front: Front) -> Iterator[LiveServer]:
    with serving_bundles(front.folder) as live:
        yield live


@pytest.fixture
def changed(server: LiveServer) -> Iterator[Callable[..., None]]:
    """Put policies, of which the last is taken back."""
    before = server.http.get(PATH).json()["policy"]

    def put(**policy: Any) -> None:
        assert server.put_policy(policy).status_code == 200

    yield put
    put(**before)


def exits(answer: dict[str, Any]) -> list[tuple[int, int | None]]:
    """Return the layer where each text left, and that in the small model."""
    said = [result["exit"] for result in answer["results"]]
    return [(each["layer"], each.get("small_layer")) for each in said]


def test_no_text_leaves_there_unless_its_rule_says_so(server: LiveServer, front: Front) -> None:
    assert server.layers(front.text, exit=front.rule) == [0]
    for choice in (front.alone, NEVER, {**front.rule, "min_layer": 1}):
        assert server.layers(front.text, exit=choice)[0] >= 1
    assert server.layers(front.text) == [DEPTH]


def test_limits_keep_it_out_and_flags_do_unless_the_policy_leaves_them_to_it(
    server: LiveServer, changed: Callable[..., None], front: Front
) -> None:
    changed(default=front.rule, limits={"min_layer": 1})
    for asked in ({}, {"exit": front.rule}):
        assert server.layers(front.text, **asked)[0] >= 1
    guard = {"exit": front.rule, "flag": FLAG}
    for limits, leaves in (({}, False), ({"table_flags": True}, True)):
        changed(default=front.rule, profiles={"guard": guard}, limits=limits)
        assert server.layers(front.text) == [0]
        for asked in ({"exit": "guard"}, {"flag": FLAG}, guard):
            assert (server.layers(front.text, **asked) == [0]) is leaves, asked


def test_every_dialect_says_layer_0(
    server: LiveServer, changed: Callable[..., None], front: Front
) -> None:
    changed(default=front.rule)
    for path in ("/models/tiny", TEI, VLLM, KSERVE, OIP):
        answer = server.http.post(path, json=SPEAK[path]({}, front.text))
        assert (answer.status_code, layer_of(path, answer)) == (200, "0"), path


def test_audits_compare_what_left_there_with_full_depth(front: Front) -> None:
    # A server of its own: what other tests have asked may have been drawn for audits too.
    with serving_bundles(front.folder) as server:
        policy = {"default": front.rule, "audit": {"share": 1}}
        assert server.put_policy(policy).status_code == 200
        full, left = (
            server.answer(front.text, **asked)["results"][0]["label"]
            for asked in ({"exit": NEVER}, {})
        )

        def audited() -> dict[str, Any]:
            report = server.http.get("/v1/models/tiny/quality").json()
            found: dict[str, Any] = report["profiles"]["default"]["exits"]
            return found

        until(lambda: "0" in audited() and audited()["0"]["audits"] == 1)
        assert audited()["0"]["differences"] == int(full != left)
        found = server.http.post(f"{PATH}/dry-run", json={"policy": {"default": NEVER}}).json()
        before, after = (found["profiles"]["default"][when]["live"] for when in ("before", "after"))
        assert after["layers"] == DEPTH
        if "small" in front.rule:
            # What it says of a text is not kept, so the dry run has no figures of it.
            assert "small model" in before["problem"]
        else:
            assert before["layers"] == 0


def test_arms_of_a_rollout_count_what_left_there(front: Front) -> None:
    start = {"patch": {"default": front.rule}, "steps": [50], "hold_s": 3600}
    with serving_bundles(front.folder) as server:
        started = server.http.post(f"{PATH}/rollout", json={**start, "bounds": {"layers": 0.5}})
        assert started.status_code == 200
        left: dict[str, list[int]] = {"live": [], "candidate": []}
        for client in range(12):
            body, sticky = {"inputs": front.text}, {"X-Offramp-Sticky": f"client {client}"}
            answer = server.http.post("/v1/classify", json=body, headers=sticky).json()
            left[answer["arm"]] += [layer for layer, _ in exits(answer)]
        assert ({*left["live"]}, {*left["candidate"]}) == ({DEPTH}, {0})

        def arms() -> dict[str, Any]:
            found: dict[str, Any] = server.http.get(f"{PATH}/rollout").json()["arms"]
            return found

        until(lambda: sum(arm["answers"] for arm in arms().values()) == 12)
        assert arms()["candidate"]["exits"] == {"0": len(left["candidate"])}


@TABLE
def test_a_sure_text_is_answered_by_the_table(server: LiveServer) -> None:
    (found,) = server.answer(SURE_TEXT, exit=BY_TABLE)["results"]
    assert found["label"] == "positive"
    place = {"layer": 0, "answered_by": 0, "layers": DEPTH}
    assert found["exit"] == {**place, "reason": "confident", "signal": found["score"]}
    assert min(server.layers([SURE_TEXT] * 2, exit="balanced")) >= 1


@TABLE
def test_texts_of_one_request_are_answered_as_each_alone(server: LiveServer) -> None:
    texts = [SURE_TEXT, UNSURE_TEXT, f"{SURE_TEXT} w8", "w9"] * 10
    ask = {"exit": BY_TABLE, "return": ["logits"]}
    alone = [server.answer(text, **ask)["results"][0] for text in texts[:4]]
    assert server.answer(texts, **ask)["results"] == alone * 10
    assert [each["exit"]["layer"] == 0 for each in alone] == [True, False, True, False]
    stayed = server.answer([texts[1], texts[3]], **ask | {"exit": ENTROPY})["results"]
    assert [alone[1], alone[3]] == stayed


@TABLE
def test_what_the_table_said_comes_first_among_the_exits(server: LiveServer) -> None:
    rule = {"rule": "layer", "layer": 2, "table": 0.8}
    ask = {"exit": rule, "return": ["exits"]}
    sure, unsure = server.answer([SURE_TEXT, UNSURE_TEXT], **ask)["results"]
    assert [each["layer"] for each in sure["exits"]] == [0]
    assert [each["layer"] for each in unsure["exits"]] == [0, 1, 2]
    assert unsure["exits"][0]["signal"] == pytest.approx(1 / 3)


@TABLE
def test_a_window_is_not_judged_by_the_table_but_the_text_beside_it_is(server: LiveServer) -> None:
    long, beside = server.layers([LONG, SURE_TEXT], exit=BY_TABLE, windows={"stride": 8})
    assert long >= 1
    assert beside == 0


@TABLE
def test_every_answer_is_counted_where_it_left(server: LiveServer) -> None:
    def counted() -> list[float]:
        of_layers = (server.metric(f"offramp_layers_{name}_total") for name in ("run", "saved"))
        bucket = server.metric("offramp_exit_layer_bucket", le="0.0", reason="confident")
        exits = server.metric("offramp_exits_total")
        return [exits, server.metric("offramp_exits_total", layer="0"), bucket, *of_layers]

    before = counted()
    left = server.layers([SURE_TEXT, UNSURE_TEXT, SURE_TEXT], exit=BY_TABLE)
    more = [now - then for now, then in zip(counted(), before, strict=True)]
    assert more == [3, 2, 2, sum(left), 3 * DEPTH - sum(left)]


def test_counts_go_on_when_a_model_gets_a_table(bundle_folder: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(bundle_folder, tmp_path / "tiny"))
    with serving_bundles(copy, model_repository=tmp_path) as server:
        assert server.refusal(SURE_TEXT, exit=BY_TABLE).message.startswith("table: this model")
        server.answer([SURE_TEXT] * 3)
        add_table(copy)
        load(server)
        assert server.layers([SURE_TEXT, UNSURE_TEXT], exit=BY_TABLE)[0] == 0
        assert server.metric("offramp_exits_total", model="tiny") == 5
        assert server.metric("offramp_exits_total", model="tiny", layer="0") == 1


def load(server: LiveServer) -> None:
    loaded = server.http.post("/v1/models/tiny/load", json={"force": True})
    assert loaded.status_code == 200, loaded.text


@TABLE
def test_a_certified_rule_may_say_the_table(front: Front, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(front.folder, tmp_path / "tiny"))
    table = load_bundle(copy).manifest.files["table.npy"]
    bound = certificate("disagreement", 0.01, 0.006)
    rungs = [
        rung(NEVER, (0, 0, 0, 0, 1), 0),
        rung(ENTROPY, (0, 0.3, 0.3, 0, 0.4), 0.006, bound),
        rung(BY_TABLE, (0.5, 0.2, 0, 0, 0.3), 0.006, bound),
    ]
    scales = [[2.0], [3.0], [1.0], [1.0], [1.0]]
    certify(copy, "fp32", table=table, rungs=rungs, decisions=[], score_temperatures=scales)
    target = {"target": {"max_disagreement": 0.01}}
    with serving_bundles(copy) as server:
        answer = server.answer(SURE_TEXT, exit=target)
        assert exits(answer) == [(0, None)]
        assert answer["exit_rule"] == BY_TABLE
        flagged = server.answer(SURE_TEXT, exit=target, flag=FLAG)
        assert (flagged["exit_rule"], flagged["certificate"]) == (ENTROPY, bound)
        for choice, scale in ((BY_TABLE, 2.0), ({"rule": "layer", "layer": 1}, 3.0)):
            asked = server.answer(SURE_TEXT, exit=choice, **{"return": ["logits"]})
            (result,) = asked["results"]
            scores = softmax(np.array(result["logits"]) / scale)
            assert result["score"] == pytest.approx(scores.max(), abs=1e-5)
        assert answer["expected_layers"] == pytest.approx(0.2 + 0.3 * DEPTH)
        ladder = server.http.get("/v1/models/tiny").json()["ladder"]["rungs"]
        assert [round(each["expected_layers"], 3) for each in ladder] == [4, 2.5, 1.4]


@SMALL
def test_the_small_model_is_described_and_answers_say_where_in_it_a_text_left(
    server: LiveServer,
) -> None:
    small = server.http.get("/v1/models/tiny").json()["small"]
    assert small == {"name": "little", "exits": list(EXITS), "layer_cost": 0.25}
    assert exits(server.answer("w1 w2", exit=IN_SMALL)) == [(0, 1)]
    (found,) = server.answer("w1 w2", exit=GOES_ON, **{"return": ["exits"]})["results"]
    said = [(each["layer"], each.get("small_layer")) for each in found["exits"]]
    assert said[:NUM_SMALL_EXITS] == [(0, layer) for layer in EXITS]
    assert said[NUM_SMALL_EXITS] == (1, None)
    refusal = server.refusal("w1", exit={"rule": "decision", "leave_above": FLAG, "small": 0.5})
    assert "decided by exits alone" in refusal.message


@SMALL
def test_targets_may_use_the_small_model_unless_there_is_a_flag(server: LiveServer) -> None:
    target = {"target": {"max_disagreement": 0.05}}
    answer = server.answer("w1 w2", exit=target)
    assert (exits(answer), answer["exit_rule"]) == ([(0, 1)], IN_SMALL)
    # 0.9 at a quarter of a layer, and 0.1 at all of both models.
    assert answer["expected_layers"] == pytest.approx(0.9 * 0.25 + 0.1 * (DEPTH * 0.25 + DEPTH))
    assert server.layers("w1 w2", exit=target, flag=FLAG)[0] >= 1


@SMALL
def test_each_stage_counts_its_own(server: LiveServer) -> None:
    def counted() -> list[float]:
        of = (("tiny", "0"), ("tiny/small", "1"), ("tiny/small", "4"))
        return [server.metric("offramp_exits_total", model=m, layer=layer) for m, layer in of]

    before = counted()
    server.answer(["w1", "w2", "w3"], exit=IN_SMALL)
    server.answer(["w1", "w2"], exit=GOES_ON)
    assert [now - then for now, then in zip(counted(), before, strict=True)] == [3, 3, 0]
    assert server.metric("offramp_segment_duration_seconds_count", model="tiny/small") > 0


@SMALL
def test_traces_have_the_runs_of_both(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    with recorded(monkeypatch) as spans, serving_bundles(front.folder) as server:
        server.answer("w1", exit=GOES_ON)
        server.answer("w1", exit=IN_SMALL)
    ran = [span.attributes or {} for span in spans["segment"]]
    own = [(each["offramp.layer"], each.get("offramp.small_layer")) for each in ran]
    assert own[0] == (0, 1)
    assert (0, DEPTH) in own
    assert own[-1] == (0, 1)
    assert any(layer >= 1 for layer, _ in own)
    assert len(spans["queue"]) == 2


@SMALL
def test_overload_moves_to_rungs_of_the_cascade(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    faster = {"queue_ms": 100, "target": {"max_disagreement": 0.05}}
    policy = {"default": {"target": {"max_disagreement": 0.01}}, "overload": faster}
    with serving_bundles(front.folder) as server:
        assert server.put_policy(policy).status_code == 200
        assert server.answer("w1")["exit_rule"] == CONFIDENCE
        monkeypatch.setattr(Engine, "wait_s", lambda engine, client, priority: 1.0)
        answer = server.answer("w1")
        assert (answer["exit_rule"], exits(answer)) == (IN_SMALL, [(0, 1)])


@SMALL
def test_a_model_gets_a_small_one_and_loses_it_while_it_is_served(
    front: Front, tmp_path: Path
) -> None:
    tiny = Path(shutil.copytree(front.folder, tmp_path / "tiny"))
    manifest = (tiny / "manifest.json").read_bytes()

    def lose() -> None:
        rewrite_manifest(tiny, lambda document: document.pop("small"))

    lose()
    none = "small: this model has no small"
    with serving_bundles(tiny, model_repository=tmp_path) as server:
        assert server.refusal("w1", exit=IN_SMALL).message.startswith(none)
        (tiny / "manifest.json").write_bytes(manifest)
        load(server)
        assert exits(server.answer("w1", exit=IN_SMALL)) == [(0, 1)]
        assert server.put_policy({"default": IN_SMALL}).status_code == 200
        lose()
        # A policy that no model can follow any more is ignored, as any other.
        load(server)
        assert exits(server.answer("w1")) == [(DEPTH, None)]
        assert server.refusal("w1", exit=IN_SMALL).message.startswith(none)
