"""Writes the answer to `/v1/classify`."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from serve.api.exit_report import exit_report
from serve.api.json_encoding import milliseconds, rounded, short, to_json
from serve.api.response import Response
from serve.classifier.classification import Classification
from serve.classifier.classify_request import Extra
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
        extras = _Extras(output, traits, returned)
        for result, answer, each in zip(results, answers, tokens, strict=True):
            extras.add(result, answer, each)
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
