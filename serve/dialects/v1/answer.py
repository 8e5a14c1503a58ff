"""Writes the answer to `/v1/classify`."""

from collections.abc import Sequence
from typing import NamedTuple

from serve.api.classification import Classification
from serve.api.exit_report import exit_report
from serve.api.json_encoding import milliseconds, rounded, short, to_json
from serve.api.response import Response
from serve.api.schemas.request import ClassifyRequest, Extra
from serve.classifier.classifier import Classified, Classifier
from serve.dialects.v1.results import (
    Json,
    LabelOutput,
    RegressionOutput,
    TaskOutput,
    TokenOutput,
)
from serve.engine.row import Answer, ExitRecord
from serve.rules.traits import Traits
from serve.tokenization.tokenizer import Tokens


def write(answered: Classification) -> Response:
    """Return the answer to a request."""
    classifier, _, classified, total_s, arm = answered
    answers = classified.answers
    fields = {
        "model": classifier.name,
        "policy_version": classified.policy_version,
        "score_scale": classifier.scores.score_scale,
        "results": _results(answered),
        "timing": {
            "queue_ms": milliseconds(max([answer.queue_s for answer in answers])),
            "compute_ms": milliseconds(max([answer.compute_s for answer in answers])),
            "total_ms": milliseconds(total_s),
        },
    }
    if classified.resolution:
        fields |= classified.resolution.report
    if arm:
        fields["arm"] = arm
    if classified.degraded:
        fields |= {"degraded": True, "degraded_by": classified.degraded}
    return Response(to_json(fields))


def _results(answered: Classification) -> list[Json]:
    classifier, request, classified, *_ = answered
    output, traits = _task_output(classifier, request), classifier.traits
    answers, tokens = classified.answers, classified.tokens
    results = output.results(answers, tokens)
    for result, answer in zip(results, answers, strict=True):
        result["exit"] = exit_report(traits, answer)
    if request.returned:
        extras = _Extras(output, traits, request.returned)
        for result, answer, each in zip(results, answers, tokens, strict=True):
            extras.add(result, answer, each)
    if classified.flagger or classified.reports:
        for place, result in enumerate(results):
            _add_decision(result, classified, place)
    return results


def _task_output(classifier: Classifier, request: ClassifyRequest) -> TaskOutput:
    labels = classifier.traits.labels
    if classifier.entities is not None:
        return TokenOutput(classifier.entities, request.aggregation or "simple")
    if classifier.traits.task == "regression":
        return RegressionOutput()
    several = classifier.traits.task == "multi_label"
    return LabelOutput(labels, request.top_k, "sigmoid" if several else "softmax")


class _Extras(NamedTuple):
    """Adds the fields to results that `return` asks for."""

    output: TaskOutput
    traits: Traits
    wanted: Sequence[Extra]

    def add(self, result: Json, answer: Answer, tokens: Tokens) -> None:
        if "exits" in self.wanted:
            result["exits"] = [self._exit(record, tokens) for record in answer.exit_trace]
        if "logits" in self.wanted:
            result["logits"] = rounded(answer.logits)

    def _exit(self, record: ExitRecord, tokens: Tokens) -> Json:
        """Return what an exit on the input's way gave."""
        found: Json = {
            "layer": self.traits.exits[record.exit_index],
            **self.output.summary(record, tokens),
            "signal": short(record.signal),
        }
        if "logits" in self.wanted:
            found["logits"] = rounded(record.logits)
        return found


def _add_decision(result: Json, classified: Classified, place: int) -> None:
    """Add what a flag and windows say."""
    if classified.flagger:
        flags = classified.flagger.flags(classified.answers[place], classified.tokens[place])
        result |= {"flagged": bool(flags), "flags": flags}
        if classified.flagger.defer:
            defers = classified.flagger.defers(classified.answers[place], classified.tokens[place])
            result |= {"deferred": bool(defers), "defers": defers}
    if report := classified.reports.get(place):
        start, end = report.span
        result["windows"] = {
            "count": report.num_windows,
            "answered": report.answered,
            "start": start,
            "end": end,
        }
