"""Metrics of whole arrays: values known from scikit-learn and scipy, and undefined cases."""

import numpy as np
import pytest

from models.evaluation.scores import macro_f1, pearson, ranks, spearman


def test_macro_f1_counts_rare_labels_like_frequent_ones() -> None:
    # sklearn.metrics.f1_score([0, 1, 2, 0, 1, 2], [0, 2, 1, 0, 0, 1], average="macro")
    found, gold = np.array([0, 2, 1, 0, 0, 1]), np.array([0, 1, 2, 0, 1, 2])
    assert macro_f1(found, gold) == pytest.approx(0.26666666666666666)
    assert macro_f1(np.array([0, 5]), np.array([0, 5])) == 1, "labels that occur nowhere"


def test_pearson_is_the_known_value() -> None:
    # scipy.stats.pearsonr([1, 2, 3, 4, 5], [10, 9, 2.5, 6, 4])
    assert pearson([1, 2, 3, 4, 5], [10, 9, 2.5, 6, 4]) == pytest.approx(-0.7426106572325057)


def test_spearman_ranks_equals_alike() -> None:
    # scipy.stats.spearmanr([1, 2, 3, 4, 5], [5, 6, 7, 8, 7])
    assert spearman([1, 2, 3, 4, 5], [5, 6, 7, 8, 7]) == pytest.approx(0.8207826816681233)
    assert ranks([7, 5, 7, 8]).tolist() == [2.5, 1, 2.5, 4]


def test_spearman_sees_order_alone() -> None:
    assert spearman([1, 2, 3], [1, 10, 1e9]) == pytest.approx(1)
    assert pearson([1, 2, 3], [1, 10, 1e9]) < 0.9


def test_what_does_not_vary_has_no_correlation() -> None:
    assert pearson([2, 2, 2], [1, 2, 3]) == 0
    assert spearman([1, 2, 3], [0, 0, 0]) == 0


def test_float32_values_are_summed_in_float64() -> None:
    values = np.full(10_000, 1e4, np.float32) + np.arange(10_000, dtype=np.float32)
    assert pearson(values, np.arange(10_000)) == pytest.approx(1, abs=1e-9)
