"""Results of logits that no tiny model gives, and their JSON."""

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from serve.api.shown import rounded, short, to_json
from serve.dialects.v1.answer import LabelOutput, RegressionOutput, TaskOutput, TokenOutput
from serve.engine.row import Answer, ExitRecord
from serve.rules.criterion import Reason
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


def passed(logits: Any) -> ExitRecord:
    return ExitRecord(0, np.float32(logits), NAN)


def result(output: TaskOutput, *logits: float, label: int = -1) -> dict[str, Any]:
    """Return the result of one input."""
    answer = Answer(np.float32(logits), 0, Reason.FINAL, NAN, 0.0, 0.0, 0, label)
    (found,) = output.results([answer], [words(1)])
    return found


@pytest.mark.parametrize(
    ("output", "logits"),
    [
        (LabelOutput(("a", "b"), None, "softmax"), [NAN, 0]),
        (LabelOutput(("a", "b"), None, "softmax"), [INF, 0]),
        (LabelOutput(("a", "b"), None, "softmax"), [-INF, -INF]),
        (LabelOutput(("a", "b"), None, "sigmoid"), [0, NAN]),
    ],
)
def test_an_exit_that_gave_no_number_has_no_label(output: TaskOutput, logits: list[float]) -> None:
    assert output.summary(passed(logits), words(1)) == {"label": None, "score": None}


def test_an_exit_that_gave_no_number_has_no_value_and_no_entities() -> None:
    assert RegressionOutput().summary(passed([NAN]), words(1)) == {"value": None}
    output = TokenOutput(EntityReader(("O", "B-X"), WordSpanFinder(tiny_tokenizer())), "simple")
    logits = [[0, 9], [0, NAN]]
    assert output.summary(passed(logits), words(2)) == {"num_entities": None}
    assert output.summary(passed(logits[:1]), words(1)) == {"num_entities": 1}


def test_infinite_logits_of_several_labels_are_certain() -> None:
    found = result(LabelOutput(("a", "b", "c"), None, "sigmoid"), -INF, INF, 0)
    assert found["labels"] == ["b"]
    assert found["scores"] == {"b": 1, "c": 0.5, "a": 0}


def test_one_half_is_not_more_likely_than_not() -> None:
    output = LabelOutput(("a",), None, "sigmoid")
    assert result(output, 0)["labels"] == []
    assert result(output, 1e-3)["labels"] == ["a"]


def test_of_equals_the_first_label_is_best_and_a_rules_choice_comes_before() -> None:
    output = LabelOutput(("a", "b"), 1, "softmax")
    assert result(output, 1, 1)["label"] == "a"
    chosen = result(output, 2, 1, label=1)
    assert (chosen["label"], list(chosen["scores"])) == ("b", ["a"])
    assert chosen["score"] < chosen["scores"]["a"]


@given(
    hnp.arrays(
        np.float32,
        hnp.array_shapes(min_dims=2, max_dims=2, max_side=40),
        elements=st.floats(-90, 90, width=32),
    )
)
def test_many_inputs_have_the_bits_that_each_has_alone(logits: NDArray[np.float32]) -> None:
    output = LabelOutput(tuple(map(str, range(logits.shape[1]))), None, "softmax")
    answers = [Answer(row, 0, Reason.FINAL, NAN, 0.0, 0.0, 0) for row in logits]
    together = output.results(answers, [words(1)] * len(answers))
    assert together == [result(output, *row) for row in logits]


def test_every_number_is_one_that_json_has() -> None:
    lists = json.loads(to_json(rounded(np.float32([[INF, -INF], [NAN, 0.1]]))))
    assert lists == [[LARGEST, -LARGEST], [None, 0.1]]
    assert rounded(np.float32([1.2345678])).tolist() == [1.234568]
    assert (short(NAN), short(INF), short(np.float32(0.1))) == (None, None, 0.1)


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text('ab\u00e9"', max_size=3), inner),
    max_leaves=9,
)  # fmt: skip


@given(st.dictionaries(st.text('ab\u00e9"', max_size=3), JSON), st.lists(JSON, max_size=3))
def test_json_says_what_it_was_given_however_long_it_is(
    fields: dict[str, Any], repeated: list[Any]
) -> None:
    for given_ in (fields, {**fields, "long": repeated * 40}, repeated * 40):
        finite = json.loads(json.dumps(given_), parse_constant=lambda _: None)
        assert json.loads(to_json(given_)) == finite
