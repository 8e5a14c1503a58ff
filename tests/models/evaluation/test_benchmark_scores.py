"""The metrics of GLUE's and ELUE's tables, against scikit-learn and scipy."""

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from models.evaluation.benchmark_scores import benchmark_scores, mcc
from models.evaluation.costs import layer_costs
from models.evaluation.points import points_of
from models.evaluation.subject import Subject
from tests.support.recordings import margins, noisy


@pytest.mark.parametrize("labels", [2, 5])
def test_mcc_is_that_of_scikit_learn(labels: int) -> None:
    draw = np.random.default_rng(labels)
    gold = draw.integers(labels, size=200)
    found = np.where(draw.random(200) < 0.6, gold, draw.integers(labels, size=200))
    assert mcc(found, gold) == pytest.approx(matthews_corrcoef(gold, found))


def test_one_answer_to_all_texts_correlates_with_nothing() -> None:
    assert mcc(np.ones(5, np.int64), np.array([0, 1, 0, 1, 1])) == 0
    assert mcc(np.array([0, 1]), np.array([1, 1])) == 0


def test_two_labels_get_the_mean_of_accuracy_and_f1() -> None:
    draw = np.random.default_rng(1)
    recorded = margins(draw.normal(size=(50, 3)), draw.integers(2, size=50))
    for logits in recorded.logits:
        found, said = benchmark_scores(recorded.traits, recorded.gold, logits), logits.argmax(1)
        of_both = accuracy_score(recorded.gold, said) + f1_score(recorded.gold, said)
        assert found["accuracy_and_f1"] == pytest.approx(of_both / 2)
        assert found["mcc"] == pytest.approx(matthews_corrcoef(recorded.gold, said))


def test_numbers_get_the_mean_of_both_correlations() -> None:
    recorded = noisy("regression")
    for logits in recorded.logits:
        found, said = benchmark_scores(recorded.traits, recorded.gold, logits), logits[:, 0]
        both = pearsonr(said, recorded.gold)[0] + spearmanr(said, recorded.gold)[0]
        assert found["pearson_and_spearman"] == pytest.approx(both / 2)


def test_every_rule_that_is_tried_has_all_metrics() -> None:
    recorded = margins([[9, 9, 9], [-0.1, -9, -9], [9, -1, -9], [0.1, -0.1, 0.2]], [1, 0, 0, 1])
    layers = {"layers": layer_costs(recorded.traits.exits, 4)}
    points = points_of(Subject("mine", "bundle", "fp32"), recorded, layers)
    for point in (point for family in points.values() for point in family):
        said = recorded.taken(point.rule).deciding.argmax(axis=1)
        assert point.metrics["accuracy"] == point.value
        assert point.metrics["mcc"] == pytest.approx(matthews_corrcoef(recorded.gold, said))
    assert set(points["static"][0].metrics) == {"accuracy", "f1", "mcc", "accuracy_and_f1"}
