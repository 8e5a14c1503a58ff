"""Long texts over HTTP: each window is what its token ids would be alone."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.serve.api.conftest import StartServer
from tests.serve.support.keys import make_key
from tests.serve.support.live_server import LiveServer
from tests.serve.support.task_bundles import LABELS
from tests.support.tiny import MAX_TOKENS, WORDS, tiny_tokenizer

OWN, STRIDE = MAX_TOKENS - 2, 16
CLS, SEP = 2, 3
LONG = " ".join(WORDS[i * 31 % 150] for i in range(200))
RULE = {"rule": "entropy", "threshold": 0.5}


def windows_of(text: str) -> list[dict[str, list[int]]]:
    """Cut by hand."""
    ids = tiny_tokenizer().encode(text, add_special_tokens=False).ids
    step, found, start = OWN - STRIDE, [], 0
    while True:
        found.append({"input_ids": [CLS, *ids[start : start + OWN], SEP]})
        if start + OWN >= len(ids):
            return found
        start += step


def table(results: list[dict[str, Any]], labels: tuple[str, ...]) -> np.ndarray:
    return np.array([[result["scores"][label] for label in labels] for result in results])


@pytest.mark.parametrize("task", ["single_label", "multi_label"])
@pytest.mark.parametrize("combine", ["max", "mean"])
def test_scores_are_the_largest_or_the_mean_of_those_of_the_windows(
    servers: LiveServer, task: str, combine: str
) -> None:
    rule = RULE | ({"reduce": "max"} if task == "multi_label" else {})
    ask: dict[str, Any] = {"model": task, "exit": rule}
    alone = servers.answer(windows_of(LONG), **ask)["results"]
    windows = {"stride": STRIDE, "combine": combine}
    short, found = servers.answer(["w1 w2", LONG], windows=windows, **ask)["results"]
    assert short == servers.answer("w1 w2", **ask)["results"][0]
    labels = LABELS[task]  # type: ignore[index]
    scores = table(alone, labels)
    expected = scores.max(axis=0) if combine == "max" else scores.mean(axis=0)
    got = table([found], labels)[0]
    if combine == "max":
        assert got.tolist() == expected.tolist()
    else:
        assert got == pytest.approx(expected, abs=1e-6)
    best = int(expected.argmax())
    assert (found["label"], found["score"]) == (labels[best], got[best])
    decided = int(scores[:, best].argmax())
    assert found["windows"] | {"start": 0, "end": 0} == {
        "count": len(alone),
        "answered": decided,
        "start": 0,
        "end": 0,
    }
    assert found["exit"] == alone[decided]["exit"]
    own = tiny_tokenizer().encode(LONG[found["windows"]["start"] : found["windows"]["end"]])
    assert own.ids == windows_of(LONG)[decided]["input_ids"]


def test_values_are_the_largest_or_the_mean(servers: LiveServer) -> None:
    values = [r["value"] for r in servers.answer(windows_of(LONG), model="regression")["results"]]
    for combine, expected in (("max", max(values)), ("mean", np.mean(values))):
        windows = {"stride": STRIDE, "combine": combine}
        (found,) = servers.answer(LONG, model="regression", windows=windows)["results"]
        assert found["value"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("aggregation", ["none", "simple", "first", "average", "max"])
def test_each_entity_is_read_in_the_window_where_it_has_most_around(
    servers: LiveServer, aggregation: str
) -> None:
    windows = {"stride": STRIDE}
    ask = {"model": "token", "exit": {"rule": "layer", "layer": 2}}
    (found,) = servers.answer(LONG, windows=windows, aggregation=aggregation, **ask)["results"]
    logits = [
        np.array(r["logits"])
        for r in servers.answer(windows_of(LONG), **ask, **{"return": ["logits"]})["results"]
    ]
    ids = tiny_tokenizer().encode(LONG, add_special_tokens=False)
    step = OWN - STRIDE
    read = []
    for token in range(len(ids.ids)):
        places = [
            (
                min(
                    token - s if s else 999,
                    s + len(own) - 3 - token if s + len(own) - 2 < len(ids.ids) else 999,
                ),
                -i,
                own[token - s + 1],
            )
            for i, own in enumerate(logits)
            if (s := i * step) <= token < s + len(own) - 2
        ]
        read.append(max(places, key=lambda place: place[:2])[2].argmax())
    labels = [LABELS["token"][label] for label in read]
    if aggregation == "none":
        assert [(e["entity"], e["start"], e["end"]) for e in found["entities"]] == [
            (label, *span) for label, span in zip(labels, ids.offsets, strict=True) if label != "O"
        ]
    else:
        inside = {i for e in found["entities"] for i in range(e["token_start"], e["token_end"])}
        assert inside == {i + 1 for i, label in enumerate(labels) if label != "O"}
        assert all(LONG[e["start"] : e["end"]] == e["word"] for e in found["entities"])


def test_any_is_answered_by_a_flagged_window_or_by_all(servers: LiveServer) -> None:
    ask = {"model": "single_label", "exit": {"rule": "never"}}
    alone = servers.answer(windows_of(LONG), **ask)["results"]
    windows = {"stride": STRIDE, "combine": "any"}
    most = max(result["scores"]["positive"] for result in alone)
    (found,) = servers.answer(LONG, flag={"positive": most}, windows=windows, **ask)["results"]
    answered = alone[found["windows"]["answered"]]
    assert found["flags"] == ["positive"]
    assert (found["scores"], found["exit"]) == (answered["scores"], answered["exit"])
    assert answered["scores"]["positive"] == most
    flag = {"positive": min(1.0, most + 1e-4)}
    (nothing,) = servers.answer(LONG, flag=flag, windows=windows, **ask)["results"]
    (as_max,) = servers.answer(LONG, windows=windows | {"combine": "max"}, **ask)["results"]
    assert not nothing.pop("flagged")
    assert nothing.pop("flags") == []
    assert nothing == as_max


def test_a_window_that_is_deferred_does_not_end_the_work_on_its_text(servers: LiveServer) -> None:
    ask = {"model": "single_label", "exit": {"rule": "never"}}
    alone = servers.answer(windows_of(LONG), **ask)["results"]
    scores = [result["scores"]["positive"] for result in alone]
    windows = {"stride": STRIDE, "combine": "any"}
    flag = {"positive": {"flag": max(scores), "defer": min(scores)}}
    (found,) = servers.answer(LONG, flag=flag, windows=windows, **ask)["results"]
    assert found["windows"]["answered"] == scores.index(max(scores))
    assert (found["flagged"], found["deferred"]) == (True, False)
    flag = {"positive": {"flag": 1, "defer": max(scores)}}
    (found,) = servers.answer(LONG, flag=flag, windows=windows, **ask)["results"]
    assert (found["flagged"], found["deferred"]) == (False, True)
    assert found["scores"]["positive"] == max(scores)


@pytest.mark.parametrize(
    "fields",
    [
        {"windows": {"combine": "any"}},  # which needs a flag
        {"windows": {"stride": 33}},  # of 64 tokens
        {"windows": {"stride": -1}},
        {"windows": {"combine": "sum"}},
        {"windows": {"size": 8}},
        {"windows": {}, "truncate": True},
        {"windows": {"combine": "mean"}, "model": "token"},
        {"windows": {}, "model": "token", "return": ["exits"]},
    ],
)
def test_windows_that_cannot_be_are_refused(servers: LiveServer, fields: dict[str, Any]) -> None:
    assert servers.refusal("w1", **{"model": "single_label", **fields}).status == 422


def test_windows_count_as_texts(start_server: StartServer) -> None:
    server = start_server(max_inputs=6)
    windows = {"stride": STRIDE}
    assert len(windows_of(LONG)) == 4
    layers = server.metric("offramp_layers_run_total")
    assert len(server.answer([LONG, "w1", "w2"], windows=windows)["results"]) == 3
    assert server.metric("offramp_layers_run_total") - layers == 6 * 4
    problem = server.refusal([LONG, "w1", "w2", "w3"], windows=windows)
    assert (problem.status, problem.code) == (422, "too_many_inputs")
    spaced = LONG.replace(" ", " " * 60)  # on a thread, in pieces
    assert server.refusal([spaced] * 2, windows=windows).code == "too_many_inputs"
    results = server.answer(spaced, windows=windows)["results"]
    assert results[0]["scores"] == server.answer(LONG, windows=windows)["results"][0]["scores"]


def test_windows_count_against_a_keys_texts(start_server: StartServer, tmp_path: Path) -> None:
    secret = make_key(tmp_path, "classify", rows_per_s=1)
    server = start_server(keys=tmp_path / "keys.json")
    body = {"inputs": [LONG] * 30, "windows": {"stride": STRIDE}}
    headers = {"Authorization": f"Bearer {secret}"}
    assert server.http.post("/v1/classify", json=body, headers=headers).status_code == 200
    refused = server.http.post("/v1/classify", json=body, headers=headers)
    assert refused.status_code == 429
    assert int(refused.headers["Retry-After"]) > 30  # more than for the texts alone


def test_profiles_cut_texts_and_a_certificate_is_about_single_windows(
    start_server: StartServer,
) -> None:
    server = start_server()
    guard = {"exit": {"target": {"max_layers": 2}}, "windows": {"stride": STRIDE}}
    policy = {"default": "guard", "profiles": {"guard": guard}}
    assert server.put_policy(policy).status_code == 200
    answer = server.answer(LONG)
    assert answer["results"][0]["windows"]["count"] == 4
    assert answer["exit_rule"] == {"rule": "layer", "layer": 2}
    assert answer["certificate"] is None
    assert server.answer(LONG, exit="guard")["results"] == answer["results"]
    assert server.refusal(LONG, exit={"rule": "never"}).code == "text_too_long"
    cut = server.answer(LONG, truncate=True)["results"]
    assert cut == server.answer(LONG, truncate=True, exit={"rule": "layer", "layer": 2})["results"]


def test_other_dialects_show_the_scores_of_combined_windows(servers: LiveServer) -> None:
    policy = {
        "default": "guard",
        "profiles": {"guard": {"exit": {"rule": "never"}, "windows": {"stride": STRIDE}}},
    }
    path = "/v1/models/single_label/policy"
    assert servers.http.put(path, json={"policy": policy, "version": None}).status_code == 200
    (own,) = servers.answer(LONG, model="single_label")["results"]
    (found,) = servers.http.post("/models/single_label", json={"inputs": LONG}).json()
    assert {each["label"]: each["score"] for each in found} == own["scores"]
    by_sigmoid = {"inputs": LONG, "parameters": {"function_to_apply": "sigmoid"}}
    tensor = {"name": "TEXT", "datatype": "BYTES", "shape": [1], "data": [LONG]}
    entropy = {"inputs": [tensor], "outputs": [{"name": "entropy"}]}
    for route, body in (
        ("/models/single_label", by_sigmoid),
        ("/v2/models/single_label/infer", entropy),
    ):
        refused = servers.http.post(route, json=body)
        assert refused.status_code in (400, 422)
