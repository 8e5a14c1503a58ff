"""The metrics of answers, by task.

The metrics that are compared over samples of rows are functions of sums over rows, so that any
sample is quickly scored: accuracy and the F1 of marks and entities are ratios of sums, and
Pearson's correlation is made of six. The others are of whole data sets alone.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata
from sklearn.metrics import f1_score, matthews_corrcoef

from models.data.alignment import IGNORED
from models.quality.answers import are_entity_tags, decided, entities_of, tags_of
from models.quality.recorded import Recorded
from serve.bundle.calibration import ExitFigures
from serve.rules.traits import Traits

# Metrics that the tables of GLUE and ELUE print: MCC for CoLA, the mean of accuracy and F1 for
# MRPC and QQP, that of Pearson's and Spearman's correlations for STS-B.
MCC, ACCURACY_F1, CORRELATIONS = "mcc", "accuracy_and_f1", "pearson_and_spearman"
_MEANS = {ACCURACY_F1: ("accuracy", "f1"), CORRELATIONS: ("pearson", "spearman")}

# GLUE's tasks that are not judged by accuracy, by the folder of the data.
_OF_TASKS = {"cola": MCC, "mrpc": "f1", "qqp": "f1"}

Array: TypeAlias = NDArray[Any]
# (rows, sums): what each row adds to each sum.
Statistics: TypeAlias = NDArray[np.float64]
# From traits, correct answers and logits to metrics by name.
Scores: TypeAlias = Callable[[Traits, Array, NDArray[np.float32]], dict[str, float]]


def measures(traits: Traits) -> tuple[str, ...]:
    """Return the names of a model's metrics, an accuracy first where there is one."""
    if traits.task == "regression":
        return "pearson", "spearman"
    if traits.task == "token":
        return ("accuracy", "entity_f1") if are_entity_tags(traits.labels) else ("accuracy",)
    if traits.task == "multi_label":
        return "accuracy", "micro_f1"
    return "accuracy", "f1" if len(traits.labels) == 2 else "macro_f1"


def main_metric(traits: Traits, data: str = "") -> str:
    """Return the metric by which exits and rules are compared.

    Args:
        traits: of the model.
        data: the file's name with its folder, such as `mrpc/dev.tsv`, where GLUE's metric counts.
    """
    if traits.task == "single_label" and len(traits.labels) == 2:
        return _OF_TASKS.get(data.lower().partition("/")[0], "accuracy")
    return measures(traits)[0 if traits.task in ("single_label", "regression") else -1]


def score(traits: Traits, gold: Array, logits: NDArray[np.float32]) -> dict[str, float]:
    """Return all metrics of one set of answers, by name.

    Args:
        traits: of the model.
        gold: the correct answers, see `models.quality.recorded`.
        logits: those that each row leaves with.
    """
    found = decided(traits, logits)
    return {name: _value(name, traits, gold, found) for name in measures(traits)}


def benchmark_scores(traits: Traits, gold: Array, logits: NDArray[np.float32]) -> dict[str, float]:
    """Return the metrics of `score`, and those that the tables of GLUE and ELUE print."""
    found = score(traits, gold, logits)
    if traits.task == "single_label":
        said = decided(traits, logits)
        one_label = len(np.union1d(gold, said)) < 2  # of which scikit-learn warns
        found[MCC] = 0.0 if one_label else float(matthews_corrcoef(gold, said))
    for name, parts in _MEANS.items():
        if found.keys() >= set(parts):
            found[name] = sum(found[part] for part in parts) / 2
    return found


def exit_figures(recorded: Recorded, scores: Scores = score) -> tuple[ExitFigures, ...]:
    """Return the metrics of every exit when it answers all rows; the answers must be known."""
    assert recorded.gold is not None
    figures = []
    for layer, logits in zip(recorded.traits.layers, recorded.logits, strict=True):
        found = scores(recorded.traits, recorded.gold, logits)
        accuracy = found.pop("accuracy", None)
        figures.append(ExitFigures(layer=layer, accuracy=accuracy, metrics=found))
    return tuple(figures)


def statistics(traits: Traits, gold: Array, logits: NDArray[np.float32], metric: str) -> Statistics:
    """Return what each row adds to the sums of a metric; the others are those of `score`."""
    return _SUMS[metric](traits, gold, decided(traits, logits))


def of_sums(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the metric of (..., sums); 0 where it is undefined."""
    if sums.shape[-1] > 2:
        return _pearson(sums)
    above, below = sums[..., 0], sums[..., 1]
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)


def pearson(one: ArrayLike, other: ArrayLike) -> float:
    """Return the Pearson correlation; 0 if either list is constant."""
    x, y = np.asarray(one, np.float64), np.asarray(other, np.float64)
    x, y = x - x.mean(), y - y.mean()
    scale = float(np.sqrt((x @ x) * (y @ y)))
    return float(x @ y) / scale if scale > 0 else 0.0


def spearman(one: ArrayLike, other: ArrayLike) -> float:
    """Return the Spearman rank correlation; equal numbers share their mean rank."""
    return pearson(rankdata(one), rankdata(other))


def _value(name: str, traits: Traits, gold: Array, found: Array) -> float:
    if name == "spearman":
        return spearman(found, gold)
    if name == "macro_f1":
        return float(f1_score(gold, found, average="macro", zero_division=0))
    return float(of_sums(_SUMS[name](traits, gold, found).sum(axis=0)))


def _accuracy(traits: Traits, gold: Array, found: Array) -> Statistics:
    """Count right texts, or a tagger's right words; of several labels all must be right."""
    if traits.task == "token":
        words = gold != IGNORED
        return _pairs(((found == gold) & words).sum(axis=1), words.sum(axis=1))
    same = (found == (gold > 0.5)).all(axis=1) if gold.ndim == 2 else found == gold
    return _pairs(same, np.ones(len(same)))


def _f1(traits: Traits, gold: Array, found: Array) -> Statistics:
    """Count what is marked: of two labels the second, of several those that are given."""
    marked, expected = (found == 1, gold == 1) if gold.ndim == 1 else (found > 0.5, gold > 0.5)
    both, either = marked & expected, marked.astype(np.int64) + expected
    rows = len(gold)
    return _pairs(2 * both.reshape(rows, -1).sum(axis=1), either.reshape(rows, -1).sum(axis=1))


def _entity_f1(traits: Traits, gold: Array, found: Array) -> Statistics:
    sums = np.zeros((len(found), 2))
    for row, (ids, own) in enumerate(zip(found, gold, strict=True)):
        said, right = (set(entities_of(tags_of(traits, tags, own))) for tags in (ids, own))
        sums[row] = 2 * len(said & right), len(said) + len(right)
    return sums


def _products(traits: Traits, gold: Array, found: Array) -> Statistics:
    # Around the data's mean, so that the sums lose no digits; a correlation does not mind.
    y = gold.astype(np.float64)
    x, y = found.astype(np.float64) - y.mean(), y - y.mean()
    return np.stack([np.ones_like(x), x, y, x * x, y * y, x * y], axis=1)


def _pairs(above: Array, below: Array) -> Statistics:
    return np.stack([above, below], axis=1).astype(np.float64)


def _pearson(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    n, x, y, xx, yy, xy = np.moveaxis(sums, -1, 0)
    # n^2 times the variances; 0 where only rounding makes a difference.
    spreads = [
        np.where(n * zz - z * z > 1e-10 * n * zz, n * zz - z * z, 0.0)
        for z, zz in ((x, xx), (y, yy))
    ]
    scale = np.sqrt(spreads[0] * spreads[1])
    return np.divide(n * xy - x * y, scale, out=np.zeros_like(scale), where=scale > 0)


_SUMS: dict[str, Callable[[Traits, Array, Array], Statistics]] = {
    "accuracy": _accuracy,
    "f1": _f1,
    "micro_f1": _f1,
    "entity_f1": _entity_f1,
    "pearson": _products,
    # Of two labels, MCC is the correlation of their ids.
    MCC: _products,
}
