"""The main metric as a function of sums over rows, so that any sample of rows is quickly scored.

Every main metric of `models.evaluation.task_metrics` is one: accuracy and F1 are ratios of sums,
and Pearson's correlation is made of five sums.
"""

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from models.data.alignment import IGNORED
from models.evaluation.answers import decided, tags_of
from models.evaluation.entities import entities_of
from models.evaluation.predictions import Predictions
from models.evaluation.task_metrics import main_metric

# (rows, sums): what each row adds to each sum.
Statistics: TypeAlias = NDArray[np.float64]


class Metric(NamedTuple):
    """The main metric of a model.

    Attributes:
        name: as in `models.evaluation.task_metrics`.
    """

    name: str

    def statistics(self, predictions: Predictions, logits: NDArray[np.float32]) -> Statistics:
        """Return what each row adds to the metric's sums.

        Args:
            predictions: holds the correct answers.
            logits: each row's logits at the exit where it leaves.
        """
        found = decided(predictions.traits, logits)
        return _STATISTICS[self.name](predictions, found)

    def of_sums(self, sums: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the metric, from 0 to 1, of (..., sums); 0 where it is undefined."""
        if self.name == "pearson":
            return _pearson(sums)
        above, below = sums[..., 0], sums[..., 1]
        return np.divide(above, below, out=np.zeros_like(above), where=below > 0)


def metric_of(predictions: Predictions) -> Metric:
    """Return the main metric of the model's task."""
    return Metric(main_metric(predictions.traits))


def _accuracy(predictions: Predictions, found: NDArray[Any]) -> Statistics:
    same, gold = found == predictions.gold, predictions.gold
    if gold.ndim == 1:
        return np.stack([same, np.ones(len(same))], axis=1).astype(np.float64)
    words = gold != IGNORED
    return np.stack([(same & words).sum(axis=1), words.sum(axis=1)], axis=1).astype(np.float64)


def _micro_f1(predictions: Predictions, found: NDArray[Any]) -> Statistics:
    gold = predictions.gold > 0.5
    both, marked = (found & gold).sum(axis=1), found.sum(axis=1) + gold.sum(axis=1)
    return np.stack([2 * both, marked], axis=1).astype(np.float64)


def _entity_f1(predictions: Predictions, found: NDArray[Any]) -> Statistics:
    sums = np.zeros((len(found), 2))
    for row in range(len(found)):
        own, gold = (
            set(entities_of(tags_of(predictions, ids, row))) for ids in (found, predictions.gold)
        )
        sums[row] = 2 * len(own & gold), len(own) + len(gold)
    return sums


def _products(predictions: Predictions, found: NDArray[Any]) -> Statistics:
    # Around the data's mean, so that the sums lose no digits; a correlation does not mind.
    y = predictions.gold.astype(np.float64)
    x, y = found.astype(np.float64) - y.mean(), y - y.mean()
    return np.stack([np.ones_like(x), x, y, x * x, y * y, x * y], axis=1)


def _pearson(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    n, x, y, xx, yy, xy = np.moveaxis(sums, -1, 0)
    scale = np.sqrt(_spread(n, x, xx) * _spread(n, y, yy))
    return np.divide(n * xy - x * y, scale, out=np.zeros_like(scale), where=scale > 0)


def _spread(
    n: NDArray[np.float64], x: NDArray[np.float64], xx: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return n^2 times the variance; 0 where only rounding makes a difference."""
    found = n * xx - x * x
    return np.where(found > 1e-10 * n * xx, found, 0.0)


_STATISTICS = {
    "accuracy": _accuracy,
    "micro_f1": _micro_f1,
    "entity_f1": _entity_f1,
    "pearson": _products,
}
