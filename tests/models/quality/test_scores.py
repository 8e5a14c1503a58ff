"""Metrics of answers by task, and the main one from sums over rows."""

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import f1_score

from models.quality.costs import LAYERS, layer_costs
from models.quality.points import Trial, resampled
from models.quality.scores import (
    benchmark_scores,
    exit_figures,
    main_metric,
    of_sums,
    pearson,
    score,
    spearman,
    statistics,
)
from serve.rules import NeverRule
from serve.rules.traits import Task, Traits
from tests.support.recordings import margins, noisy, said

# Rows: sure and right at once; sure at layer 4; wrongly sure at once; never sure.
BY_HAND = margins([[9, 9, 9], [-0.1, -9, -9], [9, -1, -9], [0.1, -0.1, 0.2]], [1, 0, 0, 1])


@pytest.mark.parametrize("task", get_args(Task))
def test_sums_over_any_rows_give_the_metric_of_those_rows(task: Task) -> None:
    recorded = noisy(task)
    traits, logits = recorded.traits, recorded.logits[1]
    sums = statistics(traits, recorded.gold, logits, main_metric(traits))
    for rows in (np.arange(60), np.array([3, 3, 8, 20, 20, 41, 59])):
        expected = score(traits, recorded.of(rows).gold, logits[rows])[main_metric(traits)]
        found = of_sums(sums[rows].sum(axis=0))
        assert found == pytest.approx(expected)


@pytest.mark.parametrize(
    ("data", "metric"),
    [("cola/dev.tsv", "mcc"), ("MRPC/dev.tsv", "f1"), ("qqp/dev.tsv", "f1"),
     ("sst2/dev.tsv", "accuracy"), ("", "accuracy")],
)  # fmt: skip
def test_glues_tasks_are_judged_by_glues_metrics(data: str, metric: str) -> None:
    draw = np.random.default_rng(0)
    gold = draw.integers(2, size=60)
    recorded = margins((draw.standard_normal((60, 3)) + gold[:, None]).tolist(), gold.tolist())
    assert main_metric(recorded.traits, data) == metric
    assert main_metric(noisy("single_label").traits, data) == "accuracy", "of three labels"
    point = Trial(recorded, {LAYERS: layer_costs((2, 4, 6), 60)}, data).point("", NeverRule())
    assert point.value == pytest.approx(point.metrics[metric])
    (sampled,) = resampled([point], samples=20)
    assert sampled.values[0] == pytest.approx(point.value)
    assert len(set(sampled.values)) > 2


def test_accuracy_per_exit_counts_right_labels() -> None:
    figures = exit_figures(BY_HAND)
    assert [(f.layer, f.accuracy) for f in figures] == [(2, 0.75), (4, 0.75), (6, 1.0)]


def test_two_labels_have_an_f1_of_the_second_and_more_labels_a_macro_f1() -> None:
    found = exit_figures(BY_HAND, benchmark_scores)[0]
    assert found.metrics == {
        "f1": pytest.approx(2 * 2 / (3 + 2)),
        "mcc": pytest.approx(0.57735, abs=1e-5),
        "accuracy_and_f1": pytest.approx((0.75 + 0.8) / 2),
    }
    three = noisy("single_label")
    found = exit_figures(three)[0]
    expected = f1_score(three.gold, three.logits[0].argmax(axis=1), average="macro")
    assert found.metrics == {"macro_f1": pytest.approx(expected)}


def test_of_several_labels_all_must_be_right_and_every_mark_counts() -> None:
    several = noisy("multi_label")
    found, marks = exit_figures(several)[0], several.logits[0] > 0
    expected = f1_score(several.gold, marks, average="micro")
    assert found.metrics == {"micro_f1": pytest.approx(expected)}
    assert found.accuracy == (marks == several.gold).all(axis=1).mean()


def test_regression_is_measured_by_correlations() -> None:
    valued = noisy("regression")
    last = exit_figures(valued, benchmark_scores)[-1]
    assert last.accuracy is None
    assert last.measured == ("pearson", "spearman", "pearson_and_spearman")
    expected = [found(valued.logits[-1, :, 0], valued.gold)[0] for found in (pearsonr, spearmanr)]
    wanted = pytest.approx([*expected, np.mean(expected)])
    assert [last.value(name) for name in last.measured] == wanted


def test_correlations_are_of_float64_and_0_where_nothing_varies() -> None:
    values = np.full(10_000, 1e4, np.float32) + np.arange(10_000, dtype=np.float32)
    assert pearson(values, np.arange(10_000)) == pytest.approx(1, abs=1e-9)
    assert pearson([2, 2, 2], [1, 2, 3]) == spearman([1, 2, 3], [0, 0, 0]) == 0


def test_words_are_measured_by_entities_and_accuracy_or_by_accuracy_alone() -> None:
    gold = np.array([[1, 2, 0], [0, -100, -100]])
    last = 9 * np.eye(3)[np.where(gold < 0, 0, gold)]
    first = 9 * np.eye(3)[np.array([[1, 1, 0], [0, 0, 0]])]
    counted = np.array([[True, True, True], [True, True, False]])
    traits = Traits((1, 2), ("O", "B-x", "I-x"), "token")
    words = said([first, last], traits, gold, counted=counted)
    early, late = exit_figures(words)
    assert (late.accuracy, late.metrics["entity_f1"]) == (1, 1)
    assert (early.accuracy, early.metrics["entity_f1"]) == (0.75, 0)
    words = replace(words, traits=Traits((1, 2), ("NOUN", "VERB", "X"), "token"))
    assert exit_figures(words)[0].measured == ("accuracy",)
    assert main_metric(words.traits) == "accuracy"


def test_an_entity_counts_only_with_both_ends_and_the_type() -> None:
    traits = Traits((1,), ("O", "B-x", "I-x", "B-y"), "token")
    gold = np.array([[1, 2, 0, 3], [-100] * 4])

    def f1(*tags: int) -> float:
        logits = np.eye(4, dtype=np.float32)[np.array([tags, (0,) * 4])]
        return score(traits, gold, logits)["entity_f1"]

    assert f1(1, 2, 0, 3) == 1
    assert f1(1, 0, 0, 3) == f1(1, 2, 0, 1) == f1(1, 2, 2, 3) == pytest.approx(2 * 1 / 4)
    assert f1(0, 0, 0, 0) == 0
