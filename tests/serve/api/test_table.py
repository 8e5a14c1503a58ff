"""Texts that leave at layer 0, by the model's table."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from serve.bundle.loader import load_bundle
from serve.rules.signals import softmax
from tests.serve.support.ladders import NEVER, certificate, certify, rung
from tests.serve.support.live_server import LiveServer, serving_bundles
from tests.serve.support.tables import SURE_TEXT, SURE_WORD, UNSURE_TEXT, add_table
from tests.support.patience import until
from tests.support.tiny import DEPTH, WORDS

ENTROPY = {"rule": "entropy", "threshold": 0.6}
RULE = {**ENTROPY, "table": 0.8}
LONG = " ".join([SURE_WORD] * 20 + list(WORDS[:100]))
FLAG = {"positive": 0.5}
PATH = "/v1/models/tiny/policy"


@pytest.fixture(scope="module")
def folder(bundle_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("table") / "tiny"
    return add_table(Path(shutil.copytree(bundle_folder, copy)))


@pytest.fixture(scope="module")
def tabled(folder: Path) -> Iterator[LiveServer]:
    with serving_bundles(folder) as server:
        yield server


@pytest.fixture
def changed(tabled: LiveServer) -> Iterator[LiveServer]:
    """Take the policy back that a test puts."""
    yield tabled
    assert tabled.put_policy({"default": NEVER}).status_code == 200


def layers(answer: dict[str, Any]) -> list[int]:
    return [result["exit"]["layer"] for result in answer["results"]]


def test_a_sure_text_leaves_before_the_first_layer(tabled: LiveServer) -> None:
    (found,) = tabled.answer(SURE_TEXT, exit=RULE)["results"]
    assert found["label"] == "positive"
    assert found["exit"] == {
        "layer": 0,
        "answered_by": 0,
        "layers": DEPTH,
        "reason": "confident",
        "signal": found["score"],
    }


def test_texts_of_one_request_are_answered_as_each_alone(tabled: LiveServer) -> None:
    texts = [SURE_TEXT, UNSURE_TEXT, f"{SURE_TEXT} w8", "w9"] * 10
    together = tabled.answer(texts, exit=RULE, **{"return": ["logits"]})["results"]
    alone = [tabled.answer(t, exit=RULE, **{"return": ["logits"]})["results"][0] for t in texts[:4]]
    assert together == alone * 10
    assert [each["exit"]["layer"] == 0 for each in alone] == [True, False, True, False]
    assert [alone[1], alone[3]] == tabled.answer(
        [texts[1], texts[3]], exit=ENTROPY, **{"return": ["logits"]}
    )["results"]


def test_without_a_word_no_text_leaves_there(tabled: LiveServer) -> None:
    for choice in (ENTROPY, "fast", "balanced", None, {**RULE, "min_layer": 1}):
        asked = {"exit": choice} if choice else {}
        assert min(layers(tabled.answer([SURE_TEXT, UNSURE_TEXT], **asked))) >= 1


def test_what_the_table_said_comes_first_among_the_exits(tabled: LiveServer) -> None:
    sure, unsure = tabled.answer(
        [SURE_TEXT, UNSURE_TEXT], exit={"rule": "layer", "layer": 2, "table": 0.8},
        **{"return": ["exits"]},
    )["results"]  # fmt: skip
    assert [each["layer"] for each in sure["exits"]] == [0]
    assert [each["layer"] for each in unsure["exits"]] == [0, 1, 2]
    assert unsure["exits"][0]["signal"] == pytest.approx(1 / 3)


def test_a_window_is_not_judged_there_but_the_text_beside_it_is(tabled: LiveServer) -> None:
    windows = {"windows": {"stride": 8}}
    left = layers(tabled.answer([LONG, SURE_TEXT], exit=RULE, **windows))
    assert left[0] >= 1
    assert left[1] == 0


def test_the_limits_keep_it_out(changed: LiveServer) -> None:
    policy = {"default": RULE, "limits": {"min_layer": 1}}
    assert changed.put_policy(policy).status_code == 200
    assert layers(changed.answer(SURE_TEXT)) != [0]
    assert layers(changed.answer(SURE_TEXT, exit=RULE)) != [0]


def test_every_dialect_says_where_it_left(changed: LiveServer) -> None:
    assert changed.put_policy({"default": RULE}).status_code == 200
    for path, body in (
        ("/models/tiny", {"inputs": SURE_TEXT}),
        ("/predict", {"inputs": SURE_TEXT}),
        ("/classify", {"input": SURE_TEXT}),
        ("/v1/models/tiny:predict", {"instances": [SURE_TEXT]}),
    ):
        answer = changed.http.post(path, json=body)
        assert (answer.status_code, answer.headers["X-Offramp-Exit-Layer"]) == (200, "0"), path
    tensor = {"name": "TEXT", "shape": [1], "datatype": "BYTES", "data": [SURE_TEXT]}
    answer = changed.http.post("/v2/models/tiny/infer", json={"inputs": [tensor]})
    outputs = {each["name"]: each["data"] for each in answer.json()["outputs"]}
    assert outputs["exit_layer"] == [0]


def test_a_flag_is_not_left_to_the_table_unless_the_policy_says_so(changed: LiveServer) -> None:
    policy = {"default": RULE, "profiles": {"guard": {"exit": RULE, "flag": FLAG}}}
    for limits, at in (({}, False), ({"table_flags": True}, True)):
        assert changed.put_policy({**policy, "limits": limits}).status_code == 200
        for asked in ({"exit": "guard"}, {"flag": FLAG}, {"exit": RULE, "flag": FLAG}):
            answer = changed.answer(SURE_TEXT, **asked)
            assert (layers(answer) == [0]) is at, asked
        assert layers(changed.answer(SURE_TEXT)) == [0]


def test_every_answer_is_counted_where_it_left(tabled: LiveServer) -> None:
    def counted(**labels: str) -> float:
        return tabled.metric("offramp_exits_total", **labels)

    def run() -> tuple[float, float, float, float]:
        of_layers = (tabled.metric(f"offramp_layers_{name}_total") for name in ("run", "saved"))
        bucket = tabled.metric("offramp_exit_layer_bucket", le="0.0", reason="confident")
        return counted(layer="0"), bucket, *of_layers

    before, texts_before = run(), counted()
    left = layers(tabled.answer([SURE_TEXT, UNSURE_TEXT, SURE_TEXT], exit=RULE))
    zero, bucket, ran, saved = (now - then for now, then in zip(run(), before, strict=True))
    assert counted() - texts_before == 3
    assert (zero, bucket, ran, saved) == (2, 2, sum(left), 3 * DEPTH - sum(left))


def test_audits_compare_what_left_there(folder: Path) -> None:
    # A server of its own: what other tests have asked may have been drawn for audits too.
    with serving_bundles(folder) as server:
        policy = {"default": RULE, "audit": {"share": 1}}
        assert server.put_policy(policy).status_code == 200
        full = server.answer(SURE_TEXT, exit=NEVER)["results"][0]["label"]

        def exits() -> dict[str, Any]:
            report = server.http.get("/v1/models/tiny/quality").json()
            found: dict[str, Any] = report["profiles"]["default"]["exits"]
            return found

        server.answer(SURE_TEXT)
        until(lambda: "0" in exits())
        assert exits()["0"]["differences"] == int(full != "positive")
        found = server.http.post(f"{PATH}/dry-run", json={"policy": {"default": NEVER}})
        assert found.status_code == 200, found.text
        sides = found.json()["profiles"]["default"]
        assert [sides[when]["live"]["layers"] for when in ("before", "after")] == [0, DEPTH]


def test_arms_of_a_rollout_count_what_left_there(folder: Path) -> None:
    start = {"patch": {"default": RULE}, "steps": [50], "hold_s": 3600, "bounds": {"layers": 0.5}}
    with serving_bundles(folder) as server:
        assert server.http.post(f"{PATH}/rollout", json=start).status_code == 200
        left: dict[str, list[int]] = {"live": [], "candidate": []}
        for client in range(12):
            body, sticky = {"inputs": SURE_TEXT}, {"X-Offramp-Sticky": f"client {client}"}
            answer = server.http.post("/v1/classify", json=body, headers=sticky).json()
            left[answer["arm"]] += layers(answer)
        assert {*left["live"]} == {DEPTH}
        assert {*left["candidate"]} == {0}

        def arms() -> dict[str, Any]:
            found: dict[str, Any] = server.http.get(f"{PATH}/rollout").json()["arms"]
            return found

        until(lambda: sum(arm["answers"] for arm in arms().values()) == 12)
        assert arms()["candidate"]["exits"] == {"0": len(left["candidate"])}


def test_counts_go_on_when_a_model_gets_a_table(bundle_folder: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(bundle_folder, tmp_path / "tiny"))
    with serving_bundles(copy, model_repository=tmp_path) as server:
        assert server.refusal(SURE_TEXT, exit=RULE).message.startswith("table: this model")
        server.answer([SURE_TEXT] * 3)
        add_table(copy)
        loaded = server.http.post("/v1/models/tiny/load", json={"force": True})
        assert loaded.status_code == 200, loaded.text
        assert layers(server.answer([SURE_TEXT, UNSURE_TEXT], exit=RULE))[0] == 0
        assert server.metric("offramp_exits_total", model="tiny") == 5
        assert server.metric("offramp_exits_total", model="tiny", layer="0") == 1


def test_a_certified_rule_may_say_the_table(folder: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "tiny"))
    table = load_bundle(copy).manifest.files["table.npy"]
    bound = certificate("disagreement", 0.01, 0.006)
    rungs = [
        rung(NEVER, (0, 0, 0, 0, 1), 0),
        rung(ENTROPY, (0, 0.3, 0.3, 0, 0.4), 0.006, bound),
        rung(RULE, (0.5, 0.2, 0, 0, 0.3), 0.006, bound),
    ]
    scales = [[2.0], [3.0], [1.0], [1.0], [1.0]]
    certify(copy, "fp32", table=table, rungs=rungs, decisions=[], score_temperatures=scales)
    target = {"target": {"max_disagreement": 0.01}}
    with serving_bundles(copy) as server:
        answer = server.answer(SURE_TEXT, exit=target)
        assert layers(answer) == [0]
        assert answer["exit_rule"] == RULE
        flagged = server.answer(SURE_TEXT, exit=target, flag=FLAG)
        assert (flagged["exit_rule"], flagged["certificate"]) == (ENTROPY, bound)
        for choice, scale in ((RULE, 2.0), ({"rule": "layer", "layer": 1}, 3.0)):
            asked = server.answer(SURE_TEXT, exit=choice, **{"return": ["logits"]})
            (result,) = asked["results"]
            scores = softmax(np.array(result["logits"]) / scale)
            assert result["score"] == pytest.approx(scores.max(), abs=1e-5)
        assert answer["expected_layers"] == pytest.approx(0.2 + 0.3 * DEPTH)
        ladder = server.http.get("/v1/models/tiny").json()["ladder"]["rungs"]
        assert [round(each["expected_layers"], 3) for each in ladder] == [4, 2.5, 1.4]
