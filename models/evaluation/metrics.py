"""What answers are worth: shares, F1 and correlations, on arrays.

The definitions are scikit-learn's and scipy's, but for undefined cases, which are 0 here.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray


def f1(found: NDArray[np.bool_], gold: NDArray[np.bool_]) -> float:
    """Return the harmonic mean of precision and recall of what is marked; 0 if nothing is.

    Marks may have any shape; with (rows, labels) it is the micro-average over the labels.
    """
    marked = int(found.sum()) + int(gold.sum())
    return 2 * int((found & gold).sum()) / marked if marked else 0.0


def macro_f1(found: NDArray[np.int64], gold: NDArray[np.number]) -> float:
    """Return the mean F1 of the labels that occur, each against all others.

    Args:
        found: (rows,) label ids.
        gold: (rows,) the right ones.
    """
    labels = np.union1d(found, gold)
    return float(np.mean([f1(found == label, gold == label) for label in labels]))


def pearson(one: ArrayLike, other: ArrayLike) -> float:
    """Return the correlation of two lists of numbers; 0 if either does not vary."""
    x, y = np.asarray(one, np.float64), np.asarray(other, np.float64)
    x, y = x - x.mean(), y - y.mean()
    scale = float(np.sqrt((x @ x) * (y @ y)))
    return float(x @ y) / scale if scale > 0 else 0.0


def spearman(one: ArrayLike, other: ArrayLike) -> float:
    """Return the correlation of the ranks of two lists of numbers; equals share their mean rank."""
    return pearson(ranks(one), ranks(other))


def ranks(values: ArrayLike) -> NDArray[np.float64]:
    """Return each number's rank, counted from 1; equals get the mean of their ranks."""
    _, group, counts = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    last = counts.cumsum()
    mean_rank: NDArray[np.float64] = last - (counts - 1) / 2
    return mean_rank[group]
