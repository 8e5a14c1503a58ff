"""From scores to a yes or no: thresholds by label, of a request or of its profile."""

import json
from pathlib import Path
from typing import Any

import pytest

from serve.bundle.loader import MANIFEST
from serve.rules.traits import Task
from tests.serve.api.conftest import StartServer
from tests.serve.support.live_server import LiveServer
from tests.serve.support.task_bundles import LABELS, Kind, write_task_bundle
from tests.support.tiny import WORDS

TEXTS = [" ".join(WORDS[i : i + 3]) for i in range(0, 40, 4)]


@pytest.mark.parametrize("task", ["single_label", "multi_label"])
def test_a_label_flags_from_its_threshold_on_and_defers_below_it_what_nothing_flags(
    servers: LiveServer, task: Task
) -> None:
    first, second = LABELS[task][:2]
    plain = servers.answer(TEXTS, model=task)["results"]
    low, high = sorted(result["scores"][first] for result in plain)[3:8:4]
    bound = sorted(r["scores"][second] for r in plain if r["scores"][first] < high)[-1]
    for of_first in (high, {"flag": high, "defer": low}):
        flag = {second: bound, first: of_first}
        results = servers.answer(TEXTS, model=task, flag=flag)["results"]
        for before, result in zip(plain, results, strict=True):
            scores = before["scores"]
            flags = [x for x, least in ((second, bound), (first, high)) if scores[x] >= least]
            assert (result.pop("flags"), result.pop("flagged")) == (flags, bool(flags))
            if of_first != high:
                defers = [first] if scores[first] >= low and not flags else []
                assert (result.pop("defers"), result.pop("deferred")) == (defers, bool(defers))
            assert result == before
    alone = servers.answer(TEXTS, model=task, flag={first: {"flag": high, "defer": low}})["results"]
    outcomes = {(result["flagged"], result["deferred"]) for result in alone}
    assert outcomes == {(True, False), (False, True), (False, False)}


@pytest.mark.parametrize("aggregation", ["none", "simple", "max"])
def test_a_text_of_tokens_is_flagged_and_deferred_by_the_best_entity_of_the_label(
    servers: LiveServer, aggregation: str
) -> None:
    ask = {"model": "token", "aggregation": aggregation}
    best: list[dict[str, float]] = []
    for result in servers.answer(TEXTS, **ask)["results"]:
        best.append({"PER": 0.0, "LOC": 0.0})
        for entity in result["entities"]:
            kind = entity["entity"].removeprefix("B-").removeprefix("I-")
            best[-1][kind] = max(best[-1][kind], entity["score"])
    persons = sorted(each["PER"] for each in best if each["PER"])
    low, high = persons[len(persons) // 3], persons[-1]
    place = max(each["LOC"] for each in best)
    flag = {"PER": {"flag": high, "defer": low}, "LOC": place}
    results = servers.answer(TEXTS, flag=flag, **ask)["results"]
    for of_text, result in zip(best, results, strict=True):
        flags = [kind for kind, least in (("PER", high), ("LOC", place)) if of_text[kind] >= least]
        assert (result["flags"], result["flagged"]) == (flags, bool(flags))
        assert result["deferred"] == (not flags and of_text["PER"] >= low)
    assert {kind for result in results for kind in result["flags"]} == {"PER", "LOC"}
    assert any(result["deferred"] for result in results)


@pytest.mark.parametrize("aggregation", ["none", "simple", "first"])
def test_every_label_that_may_flag_tokens_does_however_labels_are_written(
    start_server: StartServer, tmp_path: Path, aggregation: str
) -> None:
    folder = write_task_bundle(tmp_path, Kind("token"))
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["labels"] = ["O", "B-DATE-TIME", "S-DATE-TIME", "phone-number", "name"]
    (folder / MANIFEST).write_text(json.dumps(manifest))
    server = start_server(folder)
    refused = server.refusal(TEXTS, flag={"phone-number": 0.5}).message
    assert refused == "flag: no label 'phone-number'; the model has DATE-TIME, number, name"
    flag = {"DATE-TIME": 0.0, "number": 0.0, "name": 0.0}
    results = server.answer(TEXTS, flag=flag, aggregation=aggregation)["results"]
    for result in results:
        shown = {e["entity"] for e in result["entities"]}
        if aggregation == "none":
            shown = {label.split("-", 1)[-1] for label in shown}
        assert set(result["flags"]) == shown
    assert {label for result in results for label in result["flags"]} == set(flag)


@pytest.mark.parametrize(
    ("model", "label", "high", "low"),
    [
        ("single_label", "negative", 0.7, 0.2),
        ("multi_label", "angry", 0.9, 0.2),
        ("token", "PER", 0.9, 0.7),
    ],
)
def test_a_rule_about_decisions_decides_alike_alone_in_a_batch_and_for_detectors(
    servers: LiveServer, model: str, label: str, high: float, low: float
) -> None:
    rule = {"rule": "decision", "leave_above": {label: high}, "leave_below": {label: low / 4}}
    ask = {"model": model, "exit": rule, "flag": {label: {"flag": high, "defer": low}}}

    def decided(texts: Any, **more: Any) -> list[Any]:
        results = servers.answer(texts, **ask, **more)["results"]
        return [(r["flags"], r["defers"], r["exit"]["layer"]) for r in results]

    alone = [found for text in TEXTS for found in decided(text)]
    assert decided(TEXTS) == decided(TEXTS, **{"return": ["exits"]}) == alone
    assert decided(TEXTS, windows={"combine": "any"}) == alone
    assert len({layer for *_, layer in alone}) > 1
    assert len({(bool(flags), bool(defers)) for flags, defers, _ in alone}) > 1
    body = {"contents": TEXTS, "detector_params": ask}
    answer = servers.http.post("/api/v1/text/contents", json=body)
    assert [[*{each["detection_type"] for each in found}] for found in answer.json()] == [
        flags for flags, *_ in alone
    ]
    deferred = answer.headers["x-offramp-deferred"].split(",")
    assert deferred == [str(bool(defers)).lower() for _, defers, _ in alone]


def test_a_flag_of_the_profile_holds_until_the_request_gives_its_own(
    start_server: StartServer,
) -> None:
    server = start_server()
    profiles = {"guard": {"flag": {"negative": 1e-9}}, "plain": {"rule": "never"}}
    policy = {"default": "guard", "profiles": profiles}
    put = server.put_policy(policy)
    assert put.status_code == 200
    assert put.json()["policy"] == policy | {"limits": {"overrides": "any"}}
    assert put.json()["resolved"]["guard"] == {"rule": {"rule": "never"}}

    def flags(**fields: Any) -> Any:
        return server.answer("w1", **fields)["results"][0].get("flags")

    assert flags() == flags(exit="guard") == flags(exit={"profile": "guard"}) == ["negative"]
    assert flags(exit="plain") is flags(exit={"rule": "never"}) is None
    assert flags(flag={"positive": 0.0, "neutral": 0.0}) == ["positive", "neutral"]
    assert flags(exit="plain", flag={"positive": 0.0}) == ["positive"]
    assert server.metric("offramp_policy_version") == 2


@pytest.mark.parametrize(
    "flag",
    [
        {"angry": 0.5},
        {},
        {"negative": 1.5},
        {"negative": True},
        ["negative"],
        {"negative": {"flag": 0.8, "defer": 0.8}},
        {"negative": {"flag": 0.8}},
        {"negative": {"flag": 2, "defer": 0.1}},
        {"negative": {"flag": 1, "defer": 0.1, "x": 1}},
        {"negative": [0.8, 0.3]},
    ],
)
def test_a_flag_that_means_nothing_is_refused(servers: LiveServer, flag: Any) -> None:
    assert servers.refusal("w1", model="single_label", flag=flag).status == 422
    policy = {"default": "guard", "profiles": {"guard": {"flag": flag}}}
    if flag:  # a profile may have none
        assert servers.put_policy(policy, "single_label").status_code == 422


@pytest.mark.parametrize(
    ("model", "label"), [("regression", "stars"), ("token", "B-PER"), ("token", "O")]
)
def test_values_are_not_flagged_and_tokens_by_kinds_of_entities(
    servers: LiveServer, model: str, label: str
) -> None:
    assert servers.refusal("w1", model=model, flag={label: 0.5}).status == 422
