"""Writes the answer to `/v1/classify`; each task has its own shape of result."""

from collections.abc import Sequence
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np

from serve.api.response import Response
from serve.api.shown import (
    entities_of,
    exit_layer,
    exit_report,
    milliseconds,
    ranked,
    rounded,
    score_rows,
    short,
    to_json,
)
from serve.classifier.classification import Classification
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


def write(answered: Classification) -> Response:
    """Return the answer to a request."""
    classifier, answers = answered.classifier, answered.answers
    fields = {
        "model": classifier.name,
        "policy_version": answered.policy_version,
        "score_scale": classifier.scores.score_scale,
        "results": _results(answered),
        "timing": {
            "queue_ms": milliseconds(max([answer.queue_s for answer in answers])),
            "compute_ms": milliseconds(max([answer.compute_s for answer in answers])),
            "total_ms": milliseconds(answered.total_s),
        },
    }
    if answered.resolution:
        fields |= answered.resolution.report
    if answered.live.arm:
        fields["arm"] = answered.live.arm.name
    if answered.degraded:
        fields |= {"degraded": True, "degraded_by": answered.degraded}
    return Response(to_json(fields))


def _results(answered: Classification) -> list[Json]:
    output, traits = _task_output(answered), answered.classifier.traits
    answers, tokens, returned = answered.answers, answered.tokens, answered.asked.returned
    results = output.results(answers, tokens)
    for result, answer in zip(results, answers, strict=True):
        result["exit"] = exit_report(traits, answer)
    if returned:
        for place, result in enumerate(results):
            _add_extras(result, answered, output, place)
    if answered.flagger or answered.reports:
        for place, result in enumerate(results):
            _add_decision(result, answered, place)
    return results


def _task_output(answered: Classification) -> TaskOutput:
    classifier = answered.classifier
    if classifier.entities is not None:
        return TokenOutput(classifier.entities, answered.aggregation)
    if classifier.traits.task == "regression":
        return RegressionOutput()
    several = classifier.traits.task == "multi_label"
    function: Literal["sigmoid", "softmax"] = "sigmoid" if several else "softmax"
    return LabelOutput(classifier.traits.labels, answered.asked.top_k, function)


def _add_extras(result: Json, answered: Classification, output: TaskOutput, place: int) -> None:
    """Add what `return` asks for: the logits, and what each exit on the input's way gave."""
    answer, tokens = answered.answers[place], answered.tokens[place]
    wanted = answered.asked.returned
    if "exits" in wanted:
        traits = answered.classifier.traits
        result["exits"] = [
            {
                **exit_layer(traits, passed.exit_index),
                **output.summary(passed, tokens),
                "signal": short(passed.signal),
                **({"logits": rounded(passed.logits)} if "logits" in wanted else {}),
            }
            for passed in answer.exit_trace
        ]
    if "logits" in wanted:
        result["logits"] = rounded(answer.logits)


def _add_decision(result: Json, answered: Classification, place: int) -> None:
    """Add what a flag and windows say."""
    if flagger := answered.flagger:
        flags = flagger.flags(answered.answers[place], answered.tokens[place])
        result |= {"flagged": bool(flags), "flags": flags}
        if flagger.defer:
            defers = flagger.defers(answered.answers[place], answered.tokens[place])
            result |= {"deferred": bool(defers), "defers": defers}
    if report := answered.reports.get(place):
        start, end = report.span
        result["windows"] = {
            "count": report.num_windows,
            "answered": report.answered,
            "start": start,
            "end": end,
        }
