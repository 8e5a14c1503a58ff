"""Builds the JSON of a response from a model's answers."""

from collections.abc import Sequence

from serve.api.json_encoding import logits_as_lists, milliseconds, short
from serve.api.schemas.request import ClassifyRequest, Extra
from serve.api.task_outputs import (
    Json,
    MultiLabelOutput,
    RegressionOutput,
    SingleLabelOutput,
    TaskOutput,
    TokenOutput,
)
from serve.bundle.manifest import Manifest
from serve.classifier.classifier import Classified, Classifier
from serve.engine.row import Answer, ExitRecord
from serve.tokenization.tokenizer import Tokens


def build_response(
    classifier: Classifier, body: ClassifyRequest, classified: Classified, total_s: float
) -> Json:
    """Return the response to a request.

    Args:
        classifier: the model that has answered.
        body: the request.
        classified: the answers.
        total_s: time from the request's arrival to the answers.
    """
    answers = classified.answers
    return {
        "model": classifier.name,
        "policy_version": classified.policy_version,
        "results": build_results(classifier, body, classified),
        "timing": {
            "queue_ms": milliseconds(max(answer.queue_s for answer in answers)),
            "compute_ms": milliseconds(max(answer.compute_s for answer in answers)),
            "total_ms": milliseconds(total_s),
        },
        **(classified.resolution.report if classified.resolution else {}),
    }


def build_results(
    classifier: Classifier, body: ClassifyRequest, classified: Classified
) -> list[Json]:
    """Return the results of a response, one per input; see `build_response`."""
    manifest, output = classifier.bundle.manifest, _task_output(classifier, body)
    inputs = zip(classified.answers, classified.tokens, strict=True)
    return [
        _result(manifest, output, answer, tokens, body.returned)
        | _decision(classified, place, answer, tokens)
        for place, (answer, tokens) in enumerate(inputs)
    ]


def exit_report(manifest: Manifest, answer: Answer) -> Json:
    """Return where and why an input left."""
    return {
        "layer": manifest.exits[answer.exit_index].layer,
        "answered_by": manifest.exits[answer.head_index].layer,
        "layers": manifest.num_layers,
        "reason": answer.reason.label,
        "signal": short(answer.signal),
    }


def _decision(classified: Classified, place: int, answer: Answer, tokens: Tokens) -> Json:
    """Return what a flag and windows add to a result."""
    added: Json = {}
    if classified.flagger:
        flags = classified.flagger.flags(answer, tokens)
        added |= {"flagged": bool(flags), "flags": flags}
    if report := classified.reports.get(place):
        start, end = report.span
        added["windows"] = {
            "count": report.num_windows,
            "answered": report.answered,
            "start": start,
            "end": end,
        }
    return added


def num_logits(classified: Classified) -> int:
    """Return the number of logits in the answers, those of the exits on the way included."""
    answers = classified.answers
    of_answers = sum(answer.logits.size for answer in answers)
    return of_answers + sum(record.logits.size for a in answers for record in a.exit_trace)


def _task_output(classifier: Classifier, body: ClassifyRequest) -> TaskOutput:
    labels = classifier.bundle.manifest.labels
    if classifier.entities is not None:
        return TokenOutput(classifier.entities, body.aggregation or "simple")
    match classifier.bundle.manifest.task:
        case "regression":
            return RegressionOutput()
        case "multi_label":
            return MultiLabelOutput(labels, body.top_k)
    return SingleLabelOutput(labels, body.top_k)


def _result(
    manifest: Manifest, output: TaskOutput, answer: Answer, tokens: Tokens, extras: Sequence[Extra]
) -> Json:
    result = output.result(answer.logits, answer.label, tokens, answer.scores)
    result["exit"] = exit_report(manifest, answer)
    with_logits = "logits" in extras
    if "exits" in extras:
        result["exits"] = [
            _exit_on_the_way(manifest, output, record, tokens, with_logits)
            for record in answer.exit_trace
        ]
    if with_logits:
        result["logits"] = logits_as_lists(answer.logits)
    return result


def _exit_on_the_way(
    manifest: Manifest, output: TaskOutput, record: ExitRecord, tokens: Tokens, with_logits: bool
) -> Json:
    exit_outputs: Json = {
        "layer": manifest.exits[record.exit_index].layer,
        **output.summary(record.logits, tokens),
        "signal": short(record.signal),
    }
    if with_logits:
        exit_outputs["logits"] = logits_as_lists(record.logits)
    return exit_outputs
