"""F1 and correlations on arrays, as in scikit-learn and scipy; undefined cases are 0."""

import numpy as np
from numpy.typing import ArrayLike, NDArray


def f1(found: NDArray[np.bool_], gold: NDArray[np.bool_]) -> float:
    """Return the F1 of boolean marks; 0 if nothing is marked.

    Arrays may have any shape; for (rows, labels) this is the micro-average over the labels.
    """
    marked = int(found.sum()) + int(gold.sum())
    return 2 * int((found & gold).sum()) / marked if marked else 0.0


def macro_f1(found: NDArray[np.int64], gold: NDArray[np.number]) -> float:
    """Return the mean F1 of the labels that occur in either (rows,) array of label ids."""
    labels = np.union1d(found, gold)
    return float(np.mean([f1(found == label, gold == label) for label in labels]))


def pearson(one: ArrayLike, other: ArrayLike) -> float:
    """Return the Pearson correlation; 0 if either list is constant."""
    x, y = np.asarray(one, np.float64), np.asarray(other, np.float64)
    x, y = x - x.mean(), y - y.mean()
    scale = float(np.sqrt((x @ x) * (y @ y)))
    return float(x @ y) / scale if scale > 0 else 0.0


def spearman(one: ArrayLike, other: ArrayLike) -> float:
    """Return the Spearman rank correlation; equal numbers share their mean rank."""
    return pearson(ranks(one), ranks(other))


def ranks(values: ArrayLike) -> NDArray[np.float64]:
    """Return each number's rank from 1; equal numbers get the mean of their ranks."""
    _, group, counts = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    last = counts.cumsum()
    mean_rank: NDArray[np.float64] = last - (counts - 1) / 2
    return mean_rank[group]
