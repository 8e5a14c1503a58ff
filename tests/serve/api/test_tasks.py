"""Every task over HTTP: its fields, its results, and its refusals."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from serve.bundle.loader import load_bundle
from serve.rules.signals import softmax
from serve.runtime.placement import Placement, build_runner
from tests.serve.api.conftest import StartServer
from tests.serve.support.live_server import LiveServer
from tests.serve.support.task_bundles import EXITS, LABELS, Kind, write_task_bundle
from tests.support.tiny import WORDS, tiny_tokenizer

TEXTS = [" ".join(WORDS[i : i + 1 + i % 5]) for i in range(0, 60, 3)]
CLS, SEP = 2, 3


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return a bundle of every task; layers are shared where heads know their own error."""
    folder = tmp_path_factory.mktemp("tasks")
    kinds = {task: Kind(task) for task in LABELS} | {"learned": Kind("token", True, True)}
    return {name: write_task_bundle(folder, kind, name) for name, kind in kinds.items()}


@pytest.fixture
def serve_task(folders: dict[str, Path], start_server: StartServer) -> Any:
    """Start a server of one task's model."""
    return lambda name: start_server(folders[name])


def heads(folder: Path, text: str) -> list[np.ndarray]:
    """Return the logits of each head for a text, without batch dimension."""
    runner = build_runner(load_bundle(folder), Placement("cpu", "fp32"), 1)
    ids = np.array([tiny_tokenizer().encode(text).ids])
    step = runner.start(ids, np.ones_like(ids), 0 * ids)
    logits = [step.logits[0]]
    for index in range(1, len(runner)):
        step = runner.advance(index, step.hidden, np.arange(1), np.ones_like(ids))
        logits.append(step.logits[0])
    return logits


def sigmoid(logits: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-logits.astype(np.float64)))


def test_several_labels_are_those_more_likely_than_not(
    serve_task: Any, folders: dict[str, Path]
) -> None:
    server, names = serve_task("multi_label"), LABELS["multi_label"]
    numbers = set()
    results, of_best = (server.answer(TEXTS, **f)["results"] for f in ({}, {"top_k": 1}))
    for text, result, best in zip(TEXTS, results, of_best, strict=True):
        p = sigmoid(heads(folders["multi_label"], text)[-1])
        scores = list(result["scores"].values())
        assert result["scores"] == pytest.approx(dict(zip(names, p, strict=True)), abs=1e-5)
        assert scores == sorted(scores, reverse=True)
        likely = {name for name, chance in zip(names, p, strict=True) if chance > 0.5}
        assert result["labels"] == best["labels"] == [n for n in result["scores"] if n in likely]
        assert (result["label"], result["score"]) == next(iter(result["scores"].items()))
        assert best["scores"] == {result["label"]: result["score"]}
        numbers.add(len(result["labels"]))
    assert len(numbers) > 2


def test_a_regression_answers_with_its_value(serve_task: Any, folders: dict[str, Path]) -> None:
    server = serve_task("regression")
    results = server.answer(TEXTS)["results"]
    for text, result in zip(TEXTS, results, strict=True):
        assert set(result) == {"value", "exit"}
        assert result["value"] == pytest.approx(
            float(heads(folders["regression"], text)[-1][0]), abs=1e-5
        )


def test_tokens_are_put_together_to_entities_of_the_text(
    serve_task: Any, folders: dict[str, Path]
) -> None:
    server, names = serve_task("token"), LABELS["token"]
    results = server.answer(TEXTS, aggregation="none")["results"]
    num_entities = 0
    for text, result in zip(TEXTS, results, strict=True):
        p = softmax(heads(folders["token"], text)[-1])
        best = p.argmax(axis=1)
        words = text.split()
        expected = [i for i in range(1, len(words) + 1) if names[best[i]] != "O"]
        assert [entity["token_start"] for entity in result["entities"]] == expected
        for i, entity in zip(expected, result["entities"], strict=True):
            assert set(entity) == {
                "entity", "score", "word", "start", "end", "token_start", "token_end",
            }  # fmt: skip
            assert (entity["entity"], entity["word"]) == (names[best[i]], words[i - 1])
            assert text[entity["start"] : entity["end"]] == words[i - 1]
            assert entity["token_end"] == i + 1
            assert entity["score"] == pytest.approx(float(p[i].max()), abs=1e-5)
        num_entities += len(expected)
    assert num_entities > 20


def test_entities_are_simple_unless_another_way_is_asked_for(serve_task: Any) -> None:
    server = serve_task("token")
    default, simple, *others = (
        [result["entities"] for result in server.answer(TEXTS, **fields)["results"]]
        for fields in ({}, *({"aggregation": a} for a in ("simple", "first", "average", "max")))
    )
    assert default == simple
    assert {entity["entity"] for entities in simple for entity in entities} == {"PER", "LOC"}
    assert any(e["token_end"] - e["token_start"] > 1 for entities in simple for e in entities)
    assert all(len(entities) == len(TEXTS) for entities in others)


def test_entities_of_ids_have_token_places_only(serve_task: Any) -> None:
    server = serve_task("token")
    ids = [tiny_tokenizer().encode(text).ids for text in TEXTS]
    of_texts = server.answer(TEXTS)["results"]
    of_ids = server.answer([{"input_ids": each} for each in ids])["results"]
    for text, by_text, by_ids in zip(TEXTS, of_texts, of_ids, strict=True):
        for one, other in zip(by_text["entities"], by_ids["entities"], strict=True):
            assert (other.pop("start"), other.pop("end")) == (None, None)
            assert one["word"] == text[one.pop("start") : one.pop("end")]
            assert other == pytest.approx(one, abs=1e-5)


def test_texts_pairs_and_ids_may_be_mixed(server: LiveServer) -> None:
    vocabulary = tiny_tokenizer().get_vocab()
    w1, w2 = vocabulary["w1"], vocabulary["w2"]
    pair = {"input_ids": [CLS, w1, SEP, w2, SEP], "token_type_ids": [0, 0, 0, 1, 1]}
    untyped = {"input_ids": pair["input_ids"]}
    inputs = [{"text": "w1", "text_pair": "w2"}, pair, untyped, "w1", {"input_ids": [CLS, w1, SEP]}]
    given = [result["scores"] for result in server.answer(inputs)["results"]]
    assert given[1] == pytest.approx(given[0], abs=1e-5)
    assert given[2] != pytest.approx(given[0], abs=1e-5)
    assert given[4] == pytest.approx(given[3], abs=1e-5)
    assert server.answer(pair)["results"][0]["scores"] == pytest.approx(given[0], abs=1e-5)


@pytest.mark.parametrize("task", LABELS)
def test_logits_and_exits_are_returned_on_demand(
    serve_task: Any, folders: dict[str, Path], task: str
) -> None:
    server, text = serve_task(task), TEXTS[4]
    expected = heads(folders[task], text)
    fields = {"exit": {"rule": "never", "max_layer": EXITS[1]}}
    plain = server.answer(text, **fields)["results"][0]
    full = server.answer(text, **fields, **{"return": ["logits", "exits"]})["results"][0]
    some = server.answer(text, **fields, **{"return": ["exits"]})["results"][0]
    assert set(full) - set(plain) == {"logits", "exits"}
    assert set(some) - set(plain) == {"exits"}
    assert np.allclose(full["logits"], expected[1], atol=1e-5)
    assert [output["layer"] for output in full["exits"]] == [1, 2]
    for output, logits in zip(full["exits"], expected[:2], strict=True):
        assert np.allclose(output.pop("logits"), logits, atol=1e-5)
    assert full["exits"] == some["exits"]
    check_summaries(task, full["exits"], plain, expected)


def check_summaries(
    task: str, exits: list[dict[str, Any]], answer: dict[str, Any], expected: list[np.ndarray]
) -> None:
    last = exits[-1]
    assert last.pop("layer") == answer["exit"]["layer"]
    assert last.pop("signal") is answer["exit"]["signal"] is None
    if task == "token":
        assert last == {"num_entities": len(answer["entities"])}
    elif task == "regression":
        assert last == {"value": answer["value"]}
        assert exits[0]["value"] == pytest.approx(float(expected[0][0]), abs=1e-5)
    else:
        assert last == {"label": answer["label"], "score": answer["score"]}
        assert exits[0]["label"] == LABELS[task][int(expected[0].argmax())]  # type: ignore[index]


def test_signals_of_exits_are_those_the_rule_saw(serve_task: Any) -> None:
    server = serve_task("learned")
    rule = {"rule": "learned", "threshold": 0.45}
    left = set()
    for result in server.answer(TEXTS, exit=rule, **{"return": ["exits"]})["results"]:
        *before, last = result["exits"]
        assert last["signal"] == result["exit"]["signal"]
        assert all(passed["signal"] >= 0.45 for passed in before)
        assert last["signal"] < 0.45 or result["exit"]["reason"] == "final"
        left.add(last["layer"])
    assert len(left) > 1


def test_the_layer_whose_head_answered_is_told(serve_task: Any) -> None:
    server = serve_task("single_label")
    rule = {"rule": "confidence", "threshold": 1.0, "fallback": "most_confident"}
    others = 0
    for result in server.answer(TEXTS, exit=rule, **{"return": ["exits"]})["results"]:
        best = max(result["exits"], key=lambda passed: passed["score"])
        if result["exit"]["reason"] == "final":
            assert result["exit"]["answered_by"] == best["layer"]
            assert (result["label"], result["score"]) == (best["label"], best["score"])
            others += best["layer"] != EXITS[-1]
    assert others


def test_a_majority_s_label_comes_with_the_answering_heads_scores(serve_task: Any) -> None:
    server = serve_task("single_label")
    outvoted = 0
    asked = {"exit": {"rule": "voting", "votes": 3}, "return": ["exits"], "top_k": 1}
    for result in server.answer(TEXTS, **asked)["results"]:
        votes = [passed["label"] for passed in result["exits"]]
        assert votes.count(result["label"]) == max(votes.count(label) for label in votes)
        best = next(iter(result["scores"]))
        assert best == result["exits"][-1]["label"]
        assert result["score"] <= result["scores"][best]
        outvoted += best != result["label"]
    assert outvoted


@pytest.mark.parametrize(
    ("task", "fields", "code"),
    [
        ("multi_label", {"aggregation": "none"}, "invalid_request"),
        ("regression", {"aggregation": "none"}, "invalid_request"),
        ("regression", {"top_k": 1}, "invalid_request"),
        ("token", {"top_k": 1}, "invalid_request"),
        ("regression", {"exit": {"rule": "entropy", "threshold": 0.1}}, "invalid_rule"),
    ],
)
def test_fields_of_other_tasks_are_refused(
    serve_task: Any, task: str, fields: dict[str, Any], code: str
) -> None:
    assert serve_task(task).refusal("w1", **fields)[:2] == (422, code)


def test_ids_and_pairs_cannot_have_everything_that_texts_have(serve_task: Any) -> None:
    server = serve_task("token")
    for way in ("first", "average", "max"):
        assert server.refusal(["w1", {"input_ids": [5]}], aggregation=way).status == 422
    server.answer([{"input_ids": [5]}], aggregation="none")
    assert server.refusal([{"text": "w1", "text_pair": "w2"}]).status == 422


@pytest.mark.parametrize("task", LABELS)
def test_a_model_says_what_clients_must_know_of_its_task(serve_task: Any, task: str) -> None:
    described = serve_task(task).http.get(f"/v1/models/{task}").json()
    assert described["task"] == task
    assert described["labels"] == list(LABELS[task])  # type: ignore[index]
    assert described["pairs"] == (task != "token")
    assert described["token_types"] == 1
    assert "never" in described["rules"]
    assert ("entropy" in described["rules"]) == (task != "regression")


@pytest.mark.parametrize("task", LABELS)
def test_answers_have_the_shape_that_openapi_documents(serve_task: Any, task: str) -> None:
    server = serve_task(task)
    schemas = server.http.get("/openapi.json").json()["components"]["schemas"]
    names = {
        "single_label": "SingleLabelResult",
        "multi_label": "MultiLabelResult",
        "regression": "RegressionResult",
        "token": "TokenResult",
    }
    shape = schemas[names[task]]
    plain = server.answer(TEXTS[4])["results"][0]
    full = server.answer(TEXTS[4], **{"return": ["logits", "exits"]})["results"][0]
    assert set(plain) == set(shape["required"])
    assert set(full) | {"flagged", "flags", "deferred", "defers", "windows"} == set(
        shape["properties"]
    )
    assert set(full["exit"]) == set(schemas["ExitReport"]["required"])
    assert "votes" in schemas["ExitReport"]["properties"]["reason"]["enum"]


def test_large_answers_are_written_like_small_ones(serve_task: Any) -> None:
    """Beyond 20,000 logits they are written on a thread."""
    server, text = serve_task("token"), " ".join(WORDS[:60])
    alone = server.answer(text, **{"return": ["exits", "logits"]})["results"][0]
    results = server.answer([text] * 100, **{"return": ["exits", "logits"]})["results"]
    assert len(results) == 100
    assert [e["word"] for e in results[57]["entities"]] == [e["word"] for e in alone["entities"]]
    assert np.allclose(results[99]["logits"], alone["logits"], atol=1e-5)
