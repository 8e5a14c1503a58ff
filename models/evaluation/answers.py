"""Answers as numbers, so that equal answers are equal numbers."""

from collections.abc import Callable, Hashable, Iterable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from models.data.alignment import IGNORED
from models.evaluation.entities import are_entity_tags, entities_of
from models.evaluation.predictions import Predictions
from serve.rules.traits import Task, Traits

Ids: TypeAlias = NDArray[np.int64]


class Answers(NamedTuple):
    """What every exit answers.

    Of several labels the answer is the whole set; of a tagger, all entities of the text, or all
    tags where these are no BIO tags.

    Attributes:
        at_exits: (exits, rows).
        gold: (rows,) the correct answers.
    """

    at_exits: Ids
    gold: Ids

    @property
    def right(self) -> NDArray[np.bool_]:
        """(exits, rows) whether the answer is correct."""
        correct: NDArray[np.bool_] = self.at_exits == self.gold
        return correct

    @property
    def full(self) -> Ids:
        """(rows,) the answers at full depth."""
        return self.at_exits[-1]


class AnswerIds:
    """Numbers the answers of one model on one data set."""

    def __init__(self, predictions: Predictions) -> None:
        """Take the data set; of a regression, whose values are never quite equal, there are none.

        Raises:
            ValueError: the model is a regression.
        """
        task = predictions.traits.task
        if task == "regression":
            raise ValueError("a regression has no answers that could be equal")
        self._predictions, self._read = predictions, _READERS[task]
        self._known: dict[Hashable, int] = {}

    def of(self, logits: NDArray[np.float32]) -> Ids:
        """Return (rows,) the answers that each row's logits give."""
        return self._numbered(self._read(self._predictions, decided(self._traits, logits)))

    def all(self) -> Answers:
        """Return the answers of every exit, and the correct ones."""
        at_exits = np.stack([self.of(logits) for logits in self._predictions.logits])
        gold = self._read(self._predictions, self._predictions.gold)
        return Answers(at_exits, self._numbered(gold))

    @property
    def _traits(self) -> Traits:
        return self._predictions.traits

    def _numbered(self, answers: Iterable[Hashable]) -> Ids:
        known = self._known
        return np.array([known.setdefault(answer, len(known)) for answer in answers], np.int64)


def decided(traits: Traits, logits: NDArray[np.float32]) -> NDArray[Any]:
    """Return logits as answers in the form of gold labels: label ids, marks or values."""
    if traits.task == "multi_label":
        return logits > 0
    return logits[..., 0] if traits.task == "regression" else logits.argmax(axis=-1)


def tags_of(predictions: Predictions, ids: NDArray[Any], row: int) -> list[str]:
    """Return the tags of a text's words.

    Args:
        predictions: of a tagger.
        ids: (rows, tokens) tag ids.
        row: which text.
    """
    words = predictions.gold[row] != IGNORED
    return [predictions.traits.labels[tag] for tag in ids[row][words]]


def _labels(predictions: Predictions, ids: NDArray[Any]) -> Iterable[Hashable]:
    return ids.tolist()


def _sets(predictions: Predictions, marks: NDArray[Any]) -> Iterable[Hashable]:
    return map(tuple, (marks > 0.5).tolist())


def _tags(predictions: Predictions, ids: NDArray[Any]) -> Iterable[Hashable]:
    with_entities = are_entity_tags(predictions.traits.labels)
    for row in range(len(ids)):
        tags = tags_of(predictions, ids, row)
        yield tuple(entities_of(tags)) if with_entities else tuple(tags)


_READERS: dict[Task, Callable[[Predictions, NDArray[Any]], Iterable[Hashable]]] = {
    "single_label": _labels,
    "multi_label": _sets,
    "token": _tags,
}
