import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve.rules.signals import (
    confidence,
    entropy,
    margin,
    meaningless,
    normalized_entropy,
    sigmoid,
)


@pytest.mark.parametrize("gap", [0, 12, 17.5, 89, 104, 1e4])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_entropy_is_right_however_far_the_logits_are_apart(gap: float, dtype: type) -> None:
    logits = np.array([[gap, 0.0]], dtype)
    q = math.exp(-float(logits[0, 0]))
    expected = math.log1p(q) + float(logits[0, 0]) * q / (1 + q)
    assert entropy(logits)[0] == pytest.approx(expected, rel=1e-6, abs=2e-7)  # float32


@pytest.mark.parametrize("labels", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("level", [0.0, -3.5, 80.0])
def test_entropy_of_equal_logits_does_not_exceed_its_ceiling(labels: int, level: float) -> None:
    value = entropy(np.full((1, labels), level))[0]
    assert value == pytest.approx(math.log(labels), rel=1e-6)
    assert value <= np.float32(math.log(labels))


def test_entropy_of_a_single_label_is_a_plain_zero() -> None:
    assert not np.signbit(entropy(np.zeros((1, 1)))[0])


@pytest.mark.parametrize("row", [[np.nan, 0.0], [0.0, np.nan], [np.inf, 0.0], [-np.inf, -np.inf]])
@np.errstate(invalid="ignore")
def test_a_row_without_a_distribution_has_no_signal(row: list[float]) -> None:
    rows = np.array([row, [2.0, 0.0]])
    assert np.isnan(entropy(rows)[0])
    assert np.isnan(confidence(rows)[0])
    assert np.isfinite(entropy(rows)[1])
    assert meaningless(rows).tolist() == [True, False]


@given(st.integers(1, 40), st.integers(1, 20), st.integers(0, 2**32 - 1))
def test_signals_are_those_of_the_row_alone_to_the_last_bit(
    labels: int, rows: int, seed: int
) -> None:
    logits = np.random.default_rng(seed).normal(0, 9, (rows, labels)).astype(np.float32)
    for signal in (entropy, normalized_entropy, confidence, margin):
        alone = [signal(logits[[i]])[0] for i in range(rows)]
        assert signal(logits).tolist() == alone


@pytest.mark.parametrize("gap", [0, 12, 17.5, 89, 104, 1e4])
def test_of_two_labels_all_signals_are_of_one_probability(gap: float) -> None:
    logits = np.array([[gap, 0.0]], np.float32)
    top = confidence(logits)[0]
    assert top == pytest.approx(1 / (1 + math.exp(-gap)))
    assert sigmoid(np.float32(gap)) == pytest.approx(top)
    assert margin(logits)[0] == pytest.approx(2 * top - 1, abs=1e-6)
    assert normalized_entropy(logits)[0] == pytest.approx(entropy(logits)[0] / math.log(2))


@pytest.mark.parametrize("labels", [1, 2, 3, 1000])
def test_normalized_entropy_is_one_for_equal_logits_and_zero_for_a_single_label(
    labels: int,
) -> None:
    value = normalized_entropy(np.full((1, labels), 7.3))[0]
    assert value <= 1
    assert value == pytest.approx(1 if labels > 1 else 0)


def test_a_sigmoid_does_not_overflow() -> None:
    values = np.array([-np.inf, -1e4, -104, 0, 104, 1e4, np.inf], np.float32)
    assert sigmoid(values).tolist() == pytest.approx([0, 0, 0, 0.5, 1, 1, 1])
    assert np.isnan(sigmoid(np.array([np.nan]))[0])
