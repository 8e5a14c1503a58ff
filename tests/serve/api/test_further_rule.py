"""A further exit rule is one class and one entry of the registry; this file has such a rule."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import pytest
from pydantic import Field

from serve.rules import Rule
from serve.rules.criterion import Criterion, FreshColumns, HeadOutput, Judgement, RowsAtExit
from serve.rules.registry import RULES
from serve.rules.traits import Task, Traits
from tests.serve.support.live_server import LiveServer
from tests.support.tiny import DEPTH


class LargestLogitRule(Rule):
    """Leave when the largest logit is above the threshold."""

    tasks: ClassVar[tuple[Task, ...]] = ("single_label",)

    rule: Literal["largest_logit"] = "largest_logit"
    threshold: float = Field(description="Leave when the largest logit is above it.")

    def criterion(self, traits: Traits) -> Criterion:
        return LargestLogit()

    def columns(self, traits: Traits) -> FreshColumns:
        return {"threshold": np.array(self.threshold, np.float32)}


@dataclass(frozen=True)
class LargestLogit(Criterion):
    def judge(self, rows: RowsAtExit, head: HeadOutput) -> Judgement:
        signal = head.logits.max(axis=1)
        return Judgement(signal > rows["threshold"], signal)


@pytest.fixture
def server(start_server: Callable[..., LiveServer]) -> Iterator[LiveServer]:
    RULES.append(LargestLogitRule)
    try:
        yield start_server()
    finally:
        RULES.remove(LargestLogitRule)


def test_it_is_followed_in_batches_with_other_rules(server: LiveServer) -> None:
    texts = ["good movie", "bad movie", "the plot was long"]
    others = [{"rule": "entropy", "threshold": 0.3}, {"rule": "patience", "patience": 2}]
    wanted = {"exit": {"rule": "never"}, "return": ["exits", "logits"]}
    every_exit = [result["exits"] for result in server.answer(texts, **wanted)["results"]]
    # Between the texts' largest logits, so that they leave at different exits.
    largest = np.array([[max(e["logits"]) for e in exits] for exits in every_exit])
    for threshold in np.quantile(largest, [0, 0.5, 0.9]).tolist():
        rule = {"rule": "largest_logit", "threshold": threshold + 1e-4}
        with ThreadPoolExecutor(5) as pool:
            answers = list(pool.map(lambda e: server.answer(texts, exit=e), [rule, *others] * 5))
        for result, signals in zip(answers[-3]["results"], largest, strict=True):
            confident = np.flatnonzero(signals > threshold + 1e-4)
            expected = confident[0] + 1 if len(confident) else DEPTH
            assert result["exit"]["layer"] == expected
            reason = "confident" if expected < DEPTH else "final"
            assert result["exit"]["reason"] == reason


def test_a_wrong_field_is_refused_with_what_would_be_right(server: LiveServer) -> None:
    for fields, message in (
        ({}, "exit.threshold: required field is missing"),
        ({"threshold": "high"}, "exit.threshold: must be a valid number, not 'high'"),
        ({"threshold": 1, "patience": 2}, "exit.patience: unknown field"),
    ):
        problem = server.refusal("good movie", exit={"rule": "largest_logit", **fields})
        assert (problem.status, problem.code) == (422, "invalid_request")
        assert message in problem.message
    assert "largest_logit" in server.refusal("good movie", exit={"rule": "none"}).message


def test_it_is_documented(server: LiveServer) -> None:
    schemas = server.http.get("/openapi.json").json()["components"]["schemas"]
    assert schemas["LargestLogitRule"]["properties"]["threshold"]["type"] == "number"
    (model,) = server.http.get("/v1/models").json()["models"]
    assert "largest_logit" in model["rules"]
