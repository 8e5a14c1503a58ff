"""Logits as results in JSON: one class per task."""

from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from serve.api.json_encoding import short
from serve.rules.signals import sigmoid, softmax
from serve.tokenization.entities import Aggregation, Entity, EntityReader
from serve.tokenization.tokenizer import Tokens

Logits: TypeAlias = NDArray[np.float32]
Json: TypeAlias = dict[str, Any]

# `labels` of a multi-label result holds those with a higher probability.
LIKELY = 0.5


class TaskOutput(Protocol):
    """Turns logits of one model into JSON, as one request asks for it."""

    def result(
        self, logits: Logits, label: int, tokens: Tokens, scores: Logits | None = None
    ) -> Json:
        """Return the result of one input.

        Args:
            logits: finite, or infinite where that means certain.
            label: the id of the label that the exit rule chose; -1 if it chose none.
            tokens: of the input.
            scores: of the labels, where they are not those of the logits.
        """
        ...

    def summary(self, logits: Logits, tokens: Tokens) -> Json:
        """Return a short result of one exit on the input's way; its logits may be NaN."""
        ...


class SingleLabelOutput:
    """A softmax over the labels."""

    def __init__(self, labels: tuple[str, ...], top_k: int | None) -> None:
        self._labels, self._top_k = labels, top_k

    def result(
        self, logits: Logits, label: int, tokens: Tokens, scores: Logits | None = None
    ) -> Json:
        p = softmax(logits) if scores is None else scores
        best_first = (-p).argsort(kind="stable")
        chosen = label if label >= 0 else best_first[0]
        return {
            "label": self._labels[chosen],
            "score": short(p[chosen]),
            "scores": {self._labels[i]: short(p[i]) for i in best_first[: self._top_k]},
        }

    def summary(self, logits: Logits, tokens: Tokens) -> Json:
        with np.errstate(invalid="ignore"):
            return _best(self._labels, softmax(logits))


class MultiLabelOutput:
    """A sigmoid for every label."""

    def __init__(self, labels: tuple[str, ...], top_k: int | None) -> None:
        self._labels, self._top_k = labels, top_k

    def result(
        self, logits: Logits, label: int, tokens: Tokens, scores: Logits | None = None
    ) -> Json:
        p = sigmoid(logits)
        best_first = (-p).argsort(kind="stable")
        return {
            "labels": [self._labels[i] for i in best_first if p[i] > LIKELY],
            **_best(self._labels, p),
            "scores": {self._labels[i]: short(p[i]) for i in best_first[: self._top_k]},
        }

    def summary(self, logits: Logits, tokens: Tokens) -> Json:
        return _best(self._labels, sigmoid(logits))


class RegressionOutput:
    """The one logit itself."""

    def result(
        self, logits: Logits, label: int, tokens: Tokens, scores: Logits | None = None
    ) -> Json:
        return {"value": short(logits[0])}

    def summary(self, logits: Logits, tokens: Tokens) -> Json:
        return {"value": short(logits[0])}


class TokenOutput:
    """Entities, from a softmax for every token."""

    def __init__(self, reader: EntityReader, aggregation: Aggregation) -> None:
        self._reader, self._aggregation = reader, aggregation

    def result(
        self, logits: Logits, label: int, tokens: Tokens, scores: Logits | None = None
    ) -> Json:
        return {"entities": [_entity(entity) for entity in self._entities(logits, tokens)]}

    def summary(self, logits: Logits, tokens: Tokens) -> Json:
        readable = bool(np.isfinite(logits.max(axis=-1)).all())
        return {"num_entities": len(self._entities(logits, tokens)) if readable else None}

    def _entities(self, logits: Logits, tokens: Tokens) -> list[Entity]:
        assert tokens.counted is not None
        assert tokens.word_spans is not None
        return self._reader.read(logits, tokens.counted, tokens.word_spans, self._aggregation)


def _best(labels: tuple[str, ...], p: NDArray[np.float32]) -> Json:
    """Return the first label of the highest probability; None if a probability is NaN."""
    best = int(p.argmax())
    score = short(p[best])
    return {"label": None if score is None else labels[best], "score": score}


def _entity(entity: Entity) -> Json:
    start, end = entity.span or (None, None)
    return {
        "entity": entity.label,
        "score": short(entity.score),
        "word": entity.word,
        "start": start,
        "end": end,
        "token_start": entity.tokens[0],
        "token_end": entity.tokens[1],
    }
