"""From a model's answers to the JSON of a response."""

from collections.abc import Sequence

from serve.api.json_encoding import listed, milliseconds, short
from serve.api.schemas.request import ClassifyRequest, Extra
from serve.api.task_outputs import Entities, Json, MultiLabel, Reading, SingleLabel, Value
from serve.bundle.manifest import Manifest
from serve.classifier.classifier import Classified, Classifier
from serve.engine.row import Answer, ExitRecord
from serve.tokenization.tokenizer import Tokens


def response(
    classifier: Classifier, body: ClassifyRequest, done: Classified, total_s: float
) -> Json:
    """Return the response to a request.

    Args:
        classifier: that answered.
        body: the request.
        done: the answers.
        total_s: from the request's arrival to now.
    """
    manifest, reading = classifier.bundle.manifest, _reading(classifier, body)
    return {
        "model": classifier.name,
        "policy_version": done.policy_version,
        "results": [
            _result(manifest, reading, answer, tokens, body.returned)
            for answer, tokens in zip(done.answers, done.tokens, strict=True)
        ],
        "timing": {
            "queue_ms": milliseconds(max(answer.queue_s for answer in done.answers)),
            "compute_ms": milliseconds(max(answer.compute_s for answer in done.answers)),
            "total_ms": milliseconds(total_s),
        },
    }


def num_logits(done: Classified) -> int:
    """Return how many numbers are to be read."""
    answers = sum(answer.logits.size for answer in done.answers)
    return answers + sum(passed.logits.size for a in done.answers for passed in a.exit_trace)


def _reading(classifier: Classifier, body: ClassifyRequest) -> Reading:
    labels = classifier.bundle.manifest.labels
    if classifier.entities is not None:
        return Entities(classifier.entities, body.aggregation or "simple")
    match classifier.bundle.manifest.task:
        case "regression":
            return Value()
        case "multi_label":
            return MultiLabel(labels, body.top_k)
    return SingleLabel(labels, body.top_k)


def _result(
    manifest: Manifest, reading: Reading, answer: Answer, tokens: Tokens, extras: Sequence[Extra]
) -> Json:
    result = reading.result(answer.logits, answer.label, tokens)
    result["exit"] = {
        "layer": manifest.exits[answer.exit_index].layer,
        "answered_by": manifest.exits[answer.head_index].layer,
        "layers": manifest.num_layers,
        "reason": answer.reason.label,
        "signal": short(answer.signal),
    }
    with_logits = "logits" in extras
    if "exits" in extras:
        result["exits"] = [
            _passed(manifest, reading, passed, tokens, with_logits) for passed in answer.exit_trace
        ]
    if with_logits:
        result["logits"] = listed(answer.logits)
    return result


def _passed(
    manifest: Manifest, reading: Reading, passed: ExitRecord, tokens: Tokens, with_logits: bool
) -> Json:
    said: Json = {
        "layer": manifest.exits[passed.exit_index].layer,
        **reading.brief(passed.logits, tokens),
        "signal": short(passed.signal),
    }
    if with_logits:
        said["logits"] = listed(passed.logits)
    return said
