"""Texts that leave at layer 0, by the model's table."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from serve.bundle.loader import load_bundle
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


def test_audits_compare_what_left_there(changed: LiveServer) -> None:
    policy = {"default": RULE, "audit": {"share": 1}}
    assert changed.put_policy(policy).status_code == 200
    full = changed.answer(SURE_TEXT, exit=NEVER)["results"][0]["label"]

    def exits() -> dict[str, Any]:
        report = changed.http.get("/v1/models/tiny/quality").json()
        found: dict[str, Any] = report["profiles"]["default"]["exits"]
        return found

    changed.answer(SURE_TEXT)
    until(lambda: "0" in exits())
    assert exits()["0"]["differences"] == int(full != "positive")
    found = changed.http.post(f"{PATH}/dry-run", json={"policy": {"default": NEVER}})
    assert found.status_code == 200, found.text
    sides = found.json()["profiles"]["default"]
    assert [sides[when]["live"]["layers"] for when in ("before", "after")] == [0, DEPTH]
    assert sides["before"]["live"]["ms"] < 1


def test_a_certified_rule_may_say_the_table(folder: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "tiny"))
    table = load_bundle(copy).manifest.files["table.npy"]
    rungs = [
        rung(NEVER, (0, 0, 0, 0, 1), 0),
        rung(RULE, (0.5, 0.2, 0, 0, 0.3), 0.006, certificate("disagreement", 0.01, 0.006)),
    ]
    certify(copy, "fp32", table=table, rungs=rungs, decisions=[])
    target = {"target": {"max_disagreement": 0.01}}
    with serving_bundles(copy) as server:
        answer = server.answer(SURE_TEXT, exit=target)
        assert layers(answer) == [0]
        assert answer["exit_rule"] == RULE
        assert answer["expected_layers"] == pytest.approx(0.2 + 0.3 * DEPTH)
        ladder = server.http.get("/v1/models/tiny").json()["ladder"]["rungs"]
        assert ladder[1]["speedup"] > 1
