"""Metrics of predictions by task, computed from each row's final logits."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from models.data.alignment import IGNORED
from models.evaluation.entities import are_entity_tags, entity_f1
from models.evaluation.metrics import f1, macro_f1, pearson, spearman
from models.evaluation.predictions import Predictions
from serve.rules.traits import Task, Traits

Logits: TypeAlias = NDArray[np.float32]  # (rows, labels), or (rows, tokens, labels)


class Score(NamedTuple):
    """The figures of one set of predictions.

    Attributes:
        accuracy: share of correct rows, or of correct words; None for a regression.
        metrics: the task's other figures by name.
    """

    accuracy: float | None
    metrics: dict[str, float]


def score(predictions: Predictions, logits: Logits) -> Score:
    """Return the metrics of logits.

    Args:
        predictions: holds the gold labels and the task.
        logits: each row's logits at the exit it left at.
    """
    return _TASKS[predictions.traits.task].score(predictions, logits)


def agreement(predictions: Predictions, logits: Logits) -> float | None:
    """Return the share of rows with the same answer as the last exit; None for a regression.

    With several labels all of them must match, and with tags those of all words in the text.
    """
    answers = _TASKS[predictions.traits.task].answers
    if answers is None:
        return None
    same = answers(logits) == answers(predictions.logits[-1])
    if predictions.traits.task == "token":
        same |= predictions.gold == IGNORED
    return float(same.reshape(len(same), -1).all(axis=1).mean())


def main_metric(traits: Traits) -> str:
    """Return the metric by which exits are compared and thresholds chosen."""
    if traits.task == "token" and not are_entity_tags(traits.labels):
        return "accuracy"
    return _TASKS[traits.task].metric


def _largest(logits: Logits) -> NDArray[np.int64]:
    return logits.argmax(axis=-1)


def _positive(logits: Logits) -> NDArray[np.bool_]:
    return logits > 0


def _single_label(predictions: Predictions, logits: Logits) -> Score:
    found, gold = _largest(logits), predictions.gold
    if logits.shape[-1] == 2:
        # With two labels the second one is the positive class.
        metrics = {"f1": f1(found == 1, gold == 1)}
    else:
        metrics = {"macro_f1": macro_f1(found, gold)}
    return Score(float((found == gold).mean()), metrics)


def _multi_label(predictions: Predictions, logits: Logits) -> Score:
    found, gold = _positive(logits), predictions.gold > 0.5
    return Score(float((found == gold).all(axis=1).mean()), {"micro_f1": f1(found, gold)})


def _regression(predictions: Predictions, logits: Logits) -> Score:
    values, gold = logits[:, 0], predictions.gold
    return Score(None, {"pearson": pearson(values, gold), "spearman": spearman(values, gold)})


def _token(predictions: Predictions, logits: Logits) -> Score:
    found, gold, words = _largest(logits), predictions.gold, predictions.gold != IGNORED
    accuracy = float((found == gold)[words].mean()) if words.any() else 0.0
    labels = np.array(predictions.traits.labels)
    if not are_entity_tags(labels):
        return Score(accuracy, {})
    found_tags, gold_tags = (
        [labels[row[is_word]] for row, is_word in zip(ids, words, strict=True)]
        for ids in (found, gold)
    )
    return Score(accuracy, {"entity_f1": entity_f1(found_tags, gold_tags)})


class _TaskScore(NamedTuple):
    score: Callable[[Predictions, Logits], Score]
    answers: Callable[[Logits], NDArray[Any]] | None
    metric: str


_TASKS: dict[Task, _TaskScore] = {
    "single_label": _TaskScore(_single_label, _largest, "accuracy"),
    "multi_label": _TaskScore(_multi_label, _positive, "micro_f1"),
    "regression": _TaskScore(_regression, None, "pearson"),
    "token": _TaskScore(_token, _largest, "entity_f1"),
}
