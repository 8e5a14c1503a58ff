"""What logits say, as JSON: one reading per task."""

from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from serve.api.json_encoding import short
from serve.rules.signals import sigmoid, softmax
from serve.tokenization.entities import Aggregation, Entity, EntityReader
from serve.tokenization.tokenizer import Tokens

Logits: TypeAlias = NDArray[np.float32]
Json: TypeAlias = dict[str, Any]

# A label is given if its probability is above it: more likely than not.
LIKELY = 0.5


class Reading(Protocol):
    """How the logits of one model are read for one request."""

    def result(self, logits: Logits, label: int, tokens: Tokens) -> Json:
        """Return what the answer says.

        Args:
            logits: that say something.
            label: the one that the rule chose, or -1.
            tokens: of the input.
        """
        ...

    def brief(self, logits: Logits, tokens: Tokens) -> Json:
        """Return the same in short, of an exit that may have given no number."""
        ...


class SingleLabel:
    """A softmax over the labels."""

    def __init__(self, labels: tuple[str, ...], top_k: int | None) -> None:
        self._labels, self._top_k = labels, top_k

    def result(self, logits: Logits, label: int, tokens: Tokens) -> Json:
        p = softmax(logits)
        best_first = (-p).argsort(kind="stable")
        chosen = label if label >= 0 else best_first[0]
        return {
            "label": self._labels[chosen],
            "score": short(p[chosen]),
            "scores": {self._labels[i]: short(p[i]) for i in best_first[: self._top_k]},
        }

    def brief(self, logits: Logits, tokens: Tokens) -> Json:
        with np.errstate(invalid="ignore"):
            return _best(self._labels, softmax(logits))


class MultiLabel:
    """A sigmoid for every label."""

    def __init__(self, labels: tuple[str, ...], top_k: int | None) -> None:
        self._labels, self._top_k = labels, top_k

    def result(self, logits: Logits, label: int, tokens: Tokens) -> Json:
        p = sigmoid(logits)
        best_first = (-p).argsort(kind="stable")
        return {
            "labels": [self._labels[i] for i in best_first if p[i] > LIKELY],
            **_best(self._labels, p),
            "scores": {self._labels[i]: short(p[i]) for i in best_first[: self._top_k]},
        }

    def brief(self, logits: Logits, tokens: Tokens) -> Json:
        return _best(self._labels, sigmoid(logits))


class Value:
    """The one logit itself."""

    def result(self, logits: Logits, label: int, tokens: Tokens) -> Json:
        return {"value": short(logits[0])}

    def brief(self, logits: Logits, tokens: Tokens) -> Json:
        return {"value": short(logits[0])}


class Entities:
    """A softmax for every token."""

    def __init__(self, reader: EntityReader, aggregation: Aggregation) -> None:
        self._reader, self._aggregation = reader, aggregation

    def result(self, logits: Logits, label: int, tokens: Tokens) -> Json:
        return {"entities": [_entity(found) for found in self._read(logits, tokens)]}

    def brief(self, logits: Logits, tokens: Tokens) -> Json:
        known = bool(np.isfinite(logits.max(axis=-1)).all())
        return {"num_entities": len(self._read(logits, tokens)) if known else None}

    def _read(self, logits: Logits, tokens: Tokens) -> list[Entity]:
        assert tokens.counted is not None
        assert tokens.spelling is not None
        return self._reader.read(logits, tokens.counted, tokens.spelling, self._aggregation)


def _best(labels: tuple[str, ...], p: NDArray[np.float32]) -> Json:
    """Return the label of the highest probability, the first of equals; None if there is none."""
    best = int(p.argmax())
    score = short(p[best])
    return {"label": None if score is None else labels[best], "score": score}


def _entity(found: Entity) -> Json:
    start, end = found.span or (None, None)
    return {
        "entity": found.label,
        "score": short(found.score),
        "word": found.word,
        "start": start,
        "end": end,
        "token_start": found.tokens[0],
        "token_end": found.tokens[1],
    }
