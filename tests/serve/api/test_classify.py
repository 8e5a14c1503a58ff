import math
from typing import Any

import pytest

from tests.serve.api.conftest import StartServer
from tests.serve.support.live_server import LiveServer, Problem
from tests.support.patience import until
from tests.support.tiny import DEPTH, LABELS, MAX_TOKENS, WORDS

TEXTS = [" ".join(WORDS[i : i + 1 + i % 7]) for i in range(12)]


def test_answer_has_exactly_the_documented_fields(server: LiveServer) -> None:
    answer = server.answer("w1 w2")
    timing, [result] = answer.pop("timing"), answer.pop("results")
    assert answer == {"model": "tiny", "policy_version": 1, "score_scale": "raw"}
    assert set(result) == {"label", "score", "scores", "exit"}
    place = {"layer": DEPTH, "answered_by": DEPTH, "layers": DEPTH}
    assert result["exit"] == {**place, "reason": "final", "signal": None}
    assert set(timing) == {"queue_ms", "compute_ms", "total_ms"}
    assert min(timing.values()) >= 0
    assert timing["compute_ms"] > 0
    assert timing["total_ms"] >= max(timing["queue_ms"], timing["compute_ms"])


def test_scores_are_probabilities_best_first_and_the_label_is_the_best(server: LiveServer) -> None:
    for result in server.answer(TEXTS)["results"]:
        scores = result["scores"]
        assert set(scores) == set(LABELS)
        assert math.isclose(sum(scores.values()), 1, abs_tol=1e-5)
        assert list(scores.values()) == sorted(scores.values(), reverse=True)
        assert result["label"] == next(iter(scores))
        assert result["score"] == scores[result["label"]]


def test_results_come_in_the_order_of_the_inputs(server: LiveServer) -> None:
    alone = [server.answer(text)["results"][0] for text in TEXTS]
    together = server.answer(TEXTS)["results"]
    assert [r["label"] for r in together] == [r["label"] for r in alone]
    assert [r["score"] for r in together] == pytest.approx([r["score"] for r in alone], abs=1e-5)
    assert len({r["score"] for r in alone}) > 1


@pytest.mark.parametrize(
    "inputs",
    ["w1 w2", {"text": "w1 w2"}, {"text": "w1 w2", "text_pair": None}, ["w1 w2"]],
)
def test_text_object_and_list_say_the_same(server: LiveServer, inputs: Any) -> None:
    expected = server.answer("w1 w2")["results"][0]["scores"]
    [result] = server.answer(inputs)["results"]
    assert result["scores"] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("exit_choice", "layer", "reason", "signal"),
    [
        ({"rule": "layer", "layer": 2}, 2, "layer", None),
        ({"rule": "never"}, DEPTH, "final", None),
        ({"rule": "never", "max_layer": 3}, 3, "max_layer", None),
        ({"rule": "confidence", "threshold": 0}, 1, "confident", float),
        ({"rule": "confidence", "threshold": 0, "min_layer": 3}, 3, "confident", float),
        ({"rule": "entropy", "threshold": 0}, DEPTH, "final", float),
        ({"rule": "patience", "patience": DEPTH}, DEPTH, "final", float),
        ("fast", 1, "layer", None),
        ({"profile": "fast"}, 1, "layer", None),
    ],
)
def test_rule_of_the_request_decides_where_texts_leave(
    server: LiveServer, exit_choice: Any, layer: int, reason: str, signal: type | None
) -> None:
    for result in server.answer(TEXTS, exit=exit_choice)["results"]:
        assert result["exit"]["layer"] == layer
        assert result["exit"]["layers"] == DEPTH
        assert result["exit"]["reason"] == reason
        assert type(result["exit"]["signal"]) is (signal or type(None))


@pytest.mark.parametrize("top_k", [1, 2, 3, 99])
def test_top_k_returns_the_best_scores_only(server: LiveServer, top_k: int) -> None:
    full = server.answer("w1 w2")["results"][0]["scores"]
    [result] = server.answer("w1 w2", top_k=top_k)["results"]
    assert list(result["scores"]) == list(full)[:top_k]


def test_text_that_is_too_long_is_refused_by_its_place_or_cut(server: LiveServer) -> None:
    problem = server.refusal(["w1", " ".join(["w1"] * MAX_TOKENS)])
    assert (problem.status, problem.code) == (422, "text_too_long")
    assert "inputs[1]" in problem.message
    start = " ".join(["w1"] * (MAX_TOKENS - 2))
    whole, cut = server.answer([start, start + " w7 w8"], truncate=True)["results"]
    assert cut["scores"] == pytest.approx(whole["scores"], abs=1e-5)


def test_long_text_is_tokenized_like_a_short_one(server: LiveServer) -> None:
    """Beyond 10,000 characters tokenization moves to threads, and is done in pieces."""
    short, *long = (server.answer(["w1 w2" + " " * n] * 40)["results"] for n in (0, 300, 4000))
    assert [[result["scores"] for result in results] for results in long] == [
        [result["scores"] for result in short]
    ] * 2


def test_texts_of_odd_characters_are_answered(server: LiveServer) -> None:
    odd = ["\u200b", "\x00", "\x01\x02", "🎬", "é" * 50, "[CLS] [SEP]", "'; DROP", "\ufeffw1"]
    assert len(server.answer(odd)["results"]) == len(odd)


def test_a_text_that_is_late_from_the_start_is_an_error(server: LiveServer) -> None:
    problem = Problem.of(server.classify("w1", timeout_ms=1e-6))
    assert (problem.status, problem.code) == (504, "deadline_exceeded")


def test_a_late_text_leaves_with_the_best_answer_so_far(server: LiveServer) -> None:
    """How much time is just too little depends on the machine: try several."""
    texts = [" ".join(["w1"] * 50)] * 60

    def late_exits() -> list[dict[str, Any]]:
        for timeout_ms in (1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144):
            response = server.classify(texts, timeout_ms=timeout_ms, exit={"rule": "never"})
            if response.status_code == 200:
                exits = [result["exit"] for result in response.json()["results"]]
                late = [found for found in exits if found["reason"] == "deadline"]
                if late:
                    return late
        return []

    for found in until(late_exits):
        assert 1 <= found["layer"] < found["layers"]


# What the model, the policy or the server's limits refuse, and values that only look right.
# tests/serve/test_validation.py has what the schema refuses; test_openapi_fuzz.py draws from it.
LAYERS, RULE = {"rule": "layer"}, {"rule": "never"}
REFUSED: list[tuple[dict[str, Any], int, str]] = [
    ({"inputs": {"input_ids": [5] * 65}}, 422, "text_too_long"),
    ({"inputs": ["a"] * 257}, 422, "too_many_inputs"),
    ({"inputs": ["a"] * 10_000}, 422, "too_many_inputs"),
    ({"inputs": "a", "model": "nope"}, 404, "unknown_model"),
    ({"inputs": "a", "model": ""}, 404, "unknown_model"),
    ({"inputs": "a", "model": "../tiny"}, 404, "unknown_model"),
    ({"inputs": {"input_ids": [5, 200]}}, 422, "invalid_request"),
    ({"inputs": "a", "aggregation": "none"}, 422, "invalid_request"),
    ({"inputs": " \t\n\u00a0\u3000"}, 422, "invalid_request"),
    ({"inputs": "a", "exit": {**LAYERS, "layer": 5}}, 422, "invalid_rule"),
    ({"inputs": "a", "exit": {**LAYERS, "layer": 10**30}}, 422, "invalid_rule"),
    ({"inputs": "a", "exit": {**RULE, "min_layer": 5}}, 422, "invalid_rule"),
    ({"inputs": "a", "exit": "nope"}, 422, "unknown_profile"),
    ({"inputs": "a", "exit": {"profile": "nope"}}, 422, "unknown_profile"),
]


@pytest.mark.parametrize(("body", "status", "code"), REFUSED)
def test_wrong_request_is_refused(
    server: LiveServer, body: dict[str, Any], status: int, code: str
) -> None:
    problem = Problem.of(server.http.post("/v1/classify", json=body))
    assert (problem.status, problem.code) == (status, code)


@pytest.mark.parametrize(
    "body",
    [
        *(
            '{"inputs": "w1", %s}' % (fields % number)
            for number in ("NaN", "Infinity", "-Infinity", "1e999")
            for fields in (
                '"exit": {"rule": "entropy", "threshold": %s}',
                '"exit": {"rule": "patience", "patience": %s}',
                '"timeout_ms": %s',
                '"exit": {"target": {"max_ms": %s}}',
            )
        ),
        r'{"inputs": "\ud800"}',
        r'{"inputs": ["w1", "\udfff"]}',
        r'{"inputs": {"text": "w1", "text_pair": "\udc00"}}',
        r'{"inputs": "w1", "exit": "\ud800"}',
        r'{"inputs": "w1", "exit": {"rule": "\ud800"}}',
        r'{"inputs": "w1", "\ud800": 1}',
    ],
)
def test_numbers_that_are_not_finite_and_half_characters_are_refused(
    server: LiveServer, body: str
) -> None:
    assert Problem.of(server.post(body)).status == 422


def test_policy_decides_what_a_request_may_choose(start_server: StartServer) -> None:
    server = start_server()

    def put(**policy: Any) -> None:
        response = server.put_policy(policy)
        assert response.status_code == 200

    profiles = {"fast": {"rule": "layer", "layer": 2}}
    for overrides, profile, rule in (("any", 200, 200), ("profiles", 200, 403), ("none", 403, 403)):
        put(default="fast", profiles=profiles, limits={"overrides": overrides})
        assert server.layers("w1") == [2]
        assert server.classify("w1", exit="fast").status_code == profile
        assert server.classify("w1", exit={"profile": "fast"}).status_code == profile
        assert server.classify("w1", exit={"rule": "never"}).status_code == rule
    assert server.refusal("w1", exit="fast").code == "override_forbidden"

    put(default={"rule": "never"}, limits={"min_layer": 2, "max_layer": 3})
    assert server.layers("w1", exit={"rule": "confidence", "threshold": 0}) == [2]
    assert server.layers("w1", exit={"rule": "never"}) == [3]
    assert server.refusal("w1", exit={"rule": "layer", "layer": 4}).status == 403
