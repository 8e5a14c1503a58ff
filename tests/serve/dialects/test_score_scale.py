"""Scores of early exits that are mapped to full depth's, in every dialect and for every task."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from serve.bundle.loader import load_bundle
from serve.rules.signals import probabilities
from serve.rules.traits import Task
from tests.serve.support.bundles import rewrite_manifest
from tests.serve.support.ladders import certificate, ladder, rung
from tests.serve.support.live_server import LiveServer, serving_bundles
from tests.serve.support.task_bundles import EXITS, LABELS, Kind, write_task_bundle

TEXTS = ["w1 w2 w3", "w4 w5", "w6 w7 w8 w9 w10"]
FIRST = {"rule": "layer", "layer": 1}
DIAL = {"X-Offramp-Exit": json.dumps(FIRST)}
TASKS: tuple[Task, ...] = ("single_label", "multi_label", "token")


def temperatures(task: Task) -> list[list[float]]:
    """Return those of three exits; of several labels each has its own."""
    width = len(LABELS[task]) if task == "multi_label" else 1
    return [[0.25 + 0.125 * label for label in range(width)], [0.5] * width, [1.0] * width]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """A model of each task with temperatures for scores, and one of single labels without."""
    folder = tmp_path_factory.mktemp("scores")
    bundles = [write_task_bundle(folder / task, Kind(task)) for task in TASKS]
    for bundle, task in zip(bundles, TASKS, strict=True):
        calibrate(bundle, temperatures(task))
    raw = write_task_bundle(folder / "raw", Kind("single_label"))
    names = [
        bundle.rename(bundle.parent / task) for bundle, task in zip(bundles, TASKS, strict=True)
    ]
    with serving_bundles(*names, raw.rename(raw.parent / "raw")) as server:
        yield server


def calibrate(folder: Path, scores: list[list[float]]) -> None:
    manifest = load_bundle(folder).manifest
    made = ladder("fp32", manifest.files[manifest.variants["fp32"].weights]) | {
        "exits": EXITS,
        "temperatures": [1.0] * len(EXITS),
        "score_temperatures": scores,
        "rungs": [
            rung({"rule": "never"}, (0, 0, 1), 0),
            rung(FIRST, (1, 0, 0), 0.01, certificate("score", 0.05, 0.01)),
        ],
    }
    rewrite_manifest(folder, calibration={"ladders": [made]})


def answer(server: LiveServer, model: str, **fields: Any) -> Any:
    body = {"model": model, "inputs": TEXTS, "exit": FIRST, "return": ["logits"], **fields}
    response = server.http.post("/v1/classify", json=body)
    assert response.status_code == 200, response.text
    return response.json()


def expected(task: Task, logits: list[list[float]]) -> Any:
    scaled = np.array(logits, np.float32) / np.array(temperatures(task)[0], np.float32)
    return probabilities(task, scaled)


@pytest.mark.parametrize("task", ["single_label", "multi_label"])
def test_scores_are_mapped_and_logits_and_labels_are_not(served: LiveServer, task: Task) -> None:
    found = answer(served, task)
    assert found["score_scale"] == "full_depth"
    logits = [result["logits"] for result in found["results"]]
    for result, row, raw in zip(found["results"], expected(task, logits), logits, strict=True):
        shown = [result["scores"][label] for label in LABELS[task]]
        assert shown == pytest.approx(row.tolist(), abs=1e-5)
        assert result["label"] == LABELS[task][int(np.argmax(row))]
        if task == "single_label":
            assert result["label"] == LABELS[task][int(np.argmax(raw))]
        else:
            likely = {label for label, logit in zip(LABELS[task], raw, strict=True) if logit > 0}
            assert set(result["labels"]) == likely
    # An exit on the way shows the same score as the answer that leaves there.
    deep = answer(served, task, exit={"rule": "never"}, **{"return": ["exits"]})["results"]
    for result, early in zip(deep, found["results"], strict=True):
        assert result["exits"][0]["score"] == early["score"]
        assert result["exits"][-1]["score"] == result["score"]


def test_a_model_without_a_calibration_says_that_its_scores_are_raw(served: LiveServer) -> None:
    found = answer(served, "raw")
    assert found["score_scale"] == "raw"
    logits = [result["logits"] for result in found["results"]]
    for result, row in zip(
        found["results"], probabilities("single_label", np.array(logits, np.float32)), strict=True
    ):
        assert result["scores"][LABELS["single_label"][0]] == pytest.approx(row[0], abs=1e-5)
    scales = {m["name"]: m["score_scale"] for m in served.http.get("/v1/models").json()["models"]}
    assert scales == {task: "full_depth" for task in TASKS} | {"raw": "raw"}


def test_entities_keep_their_places_and_get_mapped_scores(served: LiveServer) -> None:
    for aggregation in ("none", "simple", "first", "average", "max"):
        found = answer(served, "token", aggregation=aggregation)["results"]
        raw = answer(served, "token", aggregation=aggregation, exit={"rule": "never"})["results"]
        assert any(result["entities"] for result in found)
        assert raw
        for result in found:
            p = expected("token", result["logits"])
            for entity in result["entities"]:
                tokens = p[entity["token_start"] : entity["token_end"]]
                if aggregation in ("none", "simple"):
                    assert entity["score"] == pytest.approx(tokens.max(axis=1).mean(), abs=1e-5)
                assert entity["score"] > 1 / len(LABELS["token"])


def numbers(found: Any) -> Iterator[float]:
    """Yield all numbers in JSON."""
    if isinstance(found, dict | list):
        for each in found.values() if isinstance(found, dict) else found:
            yield from numbers(each)
    elif isinstance(found, float):
        yield found


OF_MODEL = {"model": "single_label"}
ASKS: dict[str, Any] = {
    "/models/single_label": {"inputs": TEXTS, "parameters": {"top_k": 3}},
    "/models/single_label/predict": {"inputs": [[text] for text in TEXTS]},
    "/classify": {"input": TEXTS, **OF_MODEL},
    "/v1/models/single_label:predict": {"instances": TEXTS},
    "/v2/models/single_label/infer": {
        "inputs": [{"name": "TEXT", "shape": [3], "datatype": "BYTES", "data": TEXTS}],
        "outputs": [{"name": "probabilities"}],
    },
    "/api/v1/text/contents": {
        "contents": TEXTS,
        "detector_params": {"flag": dict.fromkeys(LABELS["single_label"], 0.0), **OF_MODEL},
    },
}


@pytest.mark.parametrize(("path", "body"), ASKS.items())
def test_every_dialect_heeds_the_dial_and_has_the_scores_of_our_own_route(
    served: LiveServer, path: str, body: Any
) -> None:
    own = answer(served, "single_label")["results"]
    response = served.http.post(path, json=body, headers=DIAL)
    assert response.status_code == 200, response.text
    assert response.headers["x-offramp-score-scale"] == "full_depth"
    assert response.headers["x-offramp-exit-layer"] == "1,1,1"
    shown = set(numbers(response.json()))
    for result in own:
        assert set(result["scores"].values()) <= shown
