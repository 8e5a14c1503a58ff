"""Answers as results in JSON: one class per task."""

from collections.abc import Sequence
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np

from serve.api.json_encoding import short
from serve.api.scores import entities_of, ranked, score_rows
from serve.engine.row import Answer, ExitRecord
from serve.rules.signals import sigmoid, softmax
from serve.tokenization.entities import Aggregation, EntityReader
from serve.tokenization.tokenizer import Tokens

Json: TypeAlias = dict[str, Any]

# `labels` of a multi-label result holds those with a higher probability.
LIKELY = 0.5


class TaskOutput(Protocol):
    """Turns answers of one model into JSON, as one request asks for it."""

    def results(self, answers: Sequence[Answer], tokens: Sequence[Tokens]) -> list[Json]:
        """Return the results of inputs, from their answers and tokens."""
        ...

    def summary(self, passed: ExitRecord, tokens: Tokens) -> Json:
        """Return a short result of one exit on the input's way; its logits may be NaN."""
        ...


class LabelOutput:
    """Scores of the labels: a softmax over them, or a sigmoid for each."""

    def __init__(
        self, labels: tuple[str, ...], top_k: int | None, function: Literal["softmax", "sigmoid"]
    ) -> None:
        self._labels, self._top_k, self._function = labels, top_k, function

    def results(self, answers: Sequence[Answer], tokens: Sequence[Tokens]) -> list[Json]:
        p, labels = score_rows(answers, self._function), self._labels
        results = []
        for answer, row in zip(answers, p.tolist(), strict=True):
            best_first = ranked(row)
            chosen = answer.label if answer.label >= 0 else best_first[0]
            result: Json = {
                "label": labels[chosen],
                "score": short(row[chosen]),
                "scores": {labels[i]: short(row[i]) for i in best_first[: self._top_k]},
            }
            if self._function == "sigmoid":
                likely = [labels[i] for i in best_first if row[i] > LIKELY]
                result = {"labels": likely, **result}
            results.append(result)
        return results

    def summary(self, passed: ExitRecord, tokens: Tokens) -> Json:
        logits = passed.score_logits
        with np.errstate(invalid="ignore"):
            p = softmax(logits) if self._function == "softmax" else sigmoid(logits)
        best = int(p.argmax())
        score = short(p[best])
        return {"label": None if score is None else self._labels[best], "score": score}


class RegressionOutput:
    """The one logit itself."""

    def results(self, answers: Sequence[Answer], tokens: Sequence[Tokens]) -> list[Json]:
        return [{"value": short(answer.logits[0])} for answer in answers]

    def summary(self, passed: ExitRecord, tokens: Tokens) -> Json:
        return {"value": short(passed.logits[0])}


class TokenOutput:
    """Entities, from a softmax for every token."""

    def __init__(self, reader: EntityReader, aggregation: Aggregation) -> None:
        self._reader, self._aggregation = reader, aggregation

    def results(self, answers: Sequence[Answer], tokens: Sequence[Tokens]) -> list[Json]:
        found = zip(answers, tokens, strict=True)
        return [{"entities": self._entities(answer, each)} for answer, each in found]

    def summary(self, passed: ExitRecord, tokens: Tokens) -> Json:
        readable = bool(np.isfinite(passed.logits.max(axis=-1)).all())
        return {"num_entities": len(self._entities(passed, tokens)) if readable else None}

    def _entities(self, said: Answer | ExitRecord, tokens: Tokens) -> list[Json]:
        return entities_of(self._reader, said, tokens, self._aggregation)
