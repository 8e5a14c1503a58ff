"""How good answers are, by task: from the logits that rows left with."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from models.data.alignment import IGNORED
from models.evaluation.entities import are_entity_tags, entity_f1
from models.evaluation.metrics import f1, macro_f1, pearson, spearman
from models.evaluation.outcome import Outcome
from serve.rules.traits import Task, Traits

Logits: TypeAlias = NDArray[np.float32]  # (rows, labels), or (rows, tokens, labels)


class Score(NamedTuple):
    """The figures of `serve.bundle.calibration` that one set of answers gets.

    Attributes:
        accuracy: share of rows, or of words, that are right; None for a regression.
        metrics: the task's other figures by name.
    """

    accuracy: float | None
    metrics: dict[str, float]


def score(outcome: Outcome, logits: Logits) -> Score:
    """Return what answers are worth.

    Args:
        outcome: what is right, and how logits are read.
        logits: those that the rows left with.
    """
    return _TASKS[outcome.traits.task].score(outcome, logits)


def agreement(outcome: Outcome, logits: Logits) -> float | None:
    """Return the share of rows with the last exit's answer; None for a regression.

    Of several labels all must be the same, and of a text all words' tags.
    """
    answers = _TASKS[outcome.traits.task].answers
    if answers is None:
        return None
    same = answers(logits) == answers(outcome.logits[-1])
    if outcome.traits.task == "token":
        same |= outcome.gold == IGNORED
    return float(same.reshape(len(same), -1).all(axis=1).mean())


def main_metric(traits: Traits) -> str:
    """Return the name of the figure by which exits are compared and thresholds chosen."""
    if traits.task == "token" and not are_entity_tags(traits.labels):
        return "accuracy"
    return _TASKS[traits.task].metric


def _largest(logits: Logits) -> NDArray[np.int64]:
    return logits.argmax(axis=-1)


def _likely(logits: Logits) -> NDArray[np.bool_]:
    return logits > 0


def _single_label(outcome: Outcome, logits: Logits) -> Score:
    found, gold = _largest(logits), outcome.gold
    if logits.shape[-1] == 2:
        # Of two labels the second is the one that is looked for.
        metrics = {"f1": f1(found == 1, gold == 1)}
    else:
        metrics = {"macro_f1": macro_f1(found, gold)}
    return Score(float((found == gold).mean()), metrics)


def _multi_label(outcome: Outcome, logits: Logits) -> Score:
    found, gold = _likely(logits), outcome.gold > 0.5
    return Score(float((found == gold).all(axis=1).mean()), {"micro_f1": f1(found, gold)})


def _regression(outcome: Outcome, logits: Logits) -> Score:
    values, gold = logits[:, 0], outcome.gold
    return Score(None, {"pearson": pearson(values, gold), "spearman": spearman(values, gold)})


def _token(outcome: Outcome, logits: Logits) -> Score:
    found, gold, words = _largest(logits), outcome.gold, outcome.gold != IGNORED
    accuracy = float((found == gold)[words].mean()) if words.any() else 0.0
    labels = np.array(outcome.traits.labels)
    if not are_entity_tags(labels):
        return Score(accuracy, {})
    said = [labels[row[is_word]] for row, is_word in zip(found, words, strict=True)]
    true = [labels[row[is_word]] for row, is_word in zip(gold, words, strict=True)]
    return Score(accuracy, {"entity_f1": entity_f1(said, true)})


class _TaskScore(NamedTuple):
    score: Callable[[Outcome, Logits], Score]
    answers: Callable[[Logits], NDArray[Any]] | None
    metric: str


_TASKS: dict[Task, _TaskScore] = {
    "single_label": _TaskScore(_single_label, _largest, "accuracy"),
    "multi_label": _TaskScore(_multi_label, _likely, "micro_f1"),
    "regression": _TaskScore(_regression, None, "pearson"),
    "token": _TaskScore(_token, _largest, "entity_f1"),
}
