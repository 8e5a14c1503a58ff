"""Results of logits that no tiny model gives, and their JSON."""

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.responses import JSONResponse

from serve.api import json_encoding
from serve.api.json_encoding import encode_by_element, logits_as_lists, short
from serve.api.task_outputs import (
    MultiLabelOutput,
    RegressionOutput,
    SingleLabelOutput,
    TaskOutput,
    TokenOutput,
)
from serve.tokenization.entities import EntityReader
from serve.tokenization.tokenizer import Tokens
from serve.tokenization.word_spans import WordSpanFinder
from tests.support.tiny import tiny_tokenizer

INF, NAN = math.inf, math.nan
LARGEST = float(np.finfo(np.float32).max)


def words(num: int) -> Tokens:
    ids = np.arange(4, 4 + num)
    word_spans = WordSpanFinder(tiny_tokenizer()).of_ids(ids.tolist())
    return Tokens(ids, 0 * ids, np.ones(num, np.bool_), word_spans)


@pytest.mark.parametrize(
    ("output", "logits"),
    [
        (SingleLabelOutput(("a", "b"), None), [NAN, 0]),
        (SingleLabelOutput(("a", "b"), None), [INF, 0]),
        (SingleLabelOutput(("a", "b"), None), [-INF, -INF]),
        (MultiLabelOutput(("a", "b"), None), [0, NAN]),
    ],
)
def test_an_exit_that_gave_no_number_has_no_label(output: TaskOutput, logits: list[float]) -> None:
    assert output.summary(np.float32(logits), words(1)) == {"label": None, "score": None}


def test_an_exit_that_gave_no_number_has_no_value_and_no_entities() -> None:
    assert RegressionOutput().summary(np.float32([NAN]), words(1)) == {"value": None}
    output = TokenOutput(EntityReader(("O", "B-X"), WordSpanFinder(tiny_tokenizer())), "simple")
    logits = np.float32([[0, 9], [0, NAN]])
    assert output.summary(logits, words(2)) == {"num_entities": None}
    assert output.summary(logits[:1], words(1)) == {"num_entities": 1}


def test_infinite_logits_of_several_labels_are_certain() -> None:
    result = MultiLabelOutput(("a", "b", "c"), None).result(
        np.float32([-INF, INF, 0]), -1, words(1)
    )
    assert result["labels"] == ["b"]
    assert result["scores"] == {"b": 1, "c": 0.5, "a": 0}


def test_one_half_is_not_more_likely_than_not() -> None:
    assert MultiLabelOutput(("a",), None).result(np.float32([0]), -1, words(1))["labels"] == []
    assert MultiLabelOutput(("a",), None).result(np.float32([1e-3]), -1, words(1))["labels"] == [
        "a"
    ]


def test_of_equals_the_first_label_is_best_and_a_rules_choice_comes_before() -> None:
    output = SingleLabelOutput(("a", "b"), 1)
    assert output.result(np.float32([1, 1]), -1, words(1))["label"] == "a"
    chosen = output.result(np.float32([2, 1]), 1, words(1))
    assert (chosen["label"], list(chosen["scores"])) == ("b", ["a"])
    assert chosen["score"] < chosen["scores"]["a"]


def test_every_number_is_one_that_json_has() -> None:
    lists = logits_as_lists(np.float32([[INF, -INF], [NAN, 0.1]]))
    assert lists == [[LARGEST, -LARGEST], [None, 0.1]]
    assert logits_as_lists(np.float32([1.2345678])) == [1.234568]
    assert (short(NAN), short(INF), short(np.float32(0.1))) == (None, None, 0.1)
    json.dumps(lists, allow_nan=False)


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text('ab\u00e9"', max_size=3), inner),
    max_leaves=20,
)  # fmt: skip


@given(st.dictionaries(st.text('ab\u00e9"', max_size=3), JSON))
def test_long_answers_have_the_bytes_of_short_ones(fields: dict[str, Any]) -> None:
    assert encode_by_element(fields) == JSONResponse(fields).body
    with pytest.raises(ValueError, match="not JSON compliant"):
        encode_by_element({**fields, "x": [{"score": NAN}]})


def test_encoder_never_gets_more_than_one_result(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(json_encoding, "_encode", lambda value: calls.append(value) or "0")
    results = [{"label": f"label {i}"} for i in range(100)]
    encode_by_element({"model": "m", "results": results})
    assert [call for call in calls if isinstance(call, dict | list)] == results
