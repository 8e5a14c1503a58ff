"""The main metric from sums over rows."""

from typing import get_args

import numpy as np
import pytest

from models.evaluation.row_statistics import metric_of
from models.evaluation.task_metrics import score
from serve.rules.traits import Task
from tests.support.observations import noisy


@pytest.mark.parametrize("task", get_args(Task))
def test_sums_over_any_rows_give_the_metric_of_those_rows(task: Task) -> None:
    predictions = noisy(task)
    metric = metric_of(predictions)
    sums = metric.statistics(predictions, predictions.logits[1])
    for rows in (np.arange(60), np.array([3, 3, 8, 20, 20, 41, 59])):
        part = predictions._replace(gold=predictions.gold[rows], logits=predictions.logits[:, rows])
        figures = score(part, part.logits[1])
        expected = figures.metrics.get(metric.name, figures.accuracy)
        assert metric.of_sums(sums[rows].sum(axis=0)) == pytest.approx(expected)


def test_a_metric_without_anything_to_count_is_zero() -> None:
    predictions = noisy("regression")
    same = np.ones_like(predictions.logits[0])
    metric = metric_of(predictions)
    assert metric.of_sums(metric.statistics(predictions, same).sum(axis=0)) == 0
