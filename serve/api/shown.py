"""Answers as JSON: numbers, scores of labels, entities, and where and why inputs left."""

import math
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray
from pydantic import Field

from serve.api.schemas import SparseModel
from serve.classifier.classification import Classification
from serve.classifier.classifier import Classifier
from serve.classifier.score_map import ScoreScale
from serve.engine.row import Answer, ExitRecord
from serve.errors import InvalidRequest
from serve.rules.criterion import Reason
from serve.rules.signals import sigmoid, softmax
from serve.rules.traits import Task, Traits
from serve.tokenization.entities import Aggregation, Entity, EntityReader
from serve.tokenization.tokenizer import Tokens

_LARGEST: Final = float(np.finfo(np.float32).max)
_OPTIONS: Final = orjson.OPT_SERIALIZE_NUMPY
# Lists of more elements are encoded one element after the other: a call holds the interpreter's
# lock, and the event loop runs between the calls of a thread.
_MANY: Final = 64


def short(value: float) -> float | None:
    """Return a float32 without the digits that it does not have; None if it is not finite."""
    return float(f"{value:.7g}") if math.isfinite(value) else None


def rounded(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return logits to six decimals, as JSON shows them; NaN becomes null there.

    An infinite logit becomes the largest float32 of its sign, which says the same.
    """
    bounded: NDArray[np.float64] = np.clip(logits.astype(np.float64), -_LARGEST, _LARGEST)
    return bounded.round(6)


def milliseconds(seconds: float) -> float:
    """Return milliseconds to the microsecond."""
    return round(seconds * 1000, 3)


def to_json(value: Any) -> bytes:
    """Return a list, or an object whose fields may be lists, as JSON; arrays are lists too."""
    if isinstance(value, dict) and any(map(_is_long, value.values())):
        named = (orjson.dumps(name) + b":" + to_json(field) for name, field in value.items())
        return b"{" + b",".join(named) + b"}"
    if _is_long(value):
        return b"[" + b",".join([orjson.dumps(each, option=_OPTIONS) for each in value]) + b"]"
    return orjson.dumps(value, option=_OPTIONS)


def _is_long(value: Any) -> bool:
    return isinstance(value, list) and len(value) > _MANY


Function = Literal["softmax", "sigmoid", "none"]

# From logits to scores.
FUNCTIONS: Final[dict[Task, Function]] = {
    "single_label": "softmax",
    "multi_label": "sigmoid",
    "regression": "none",
}


class LabelScore(NamedTuple):
    """A label and its probability, or what else was asked for; equal to that of `/v1/classify`."""

    label_id: int
    label: str
    score: float | None


def check_labels_texts(classifier: Classifier) -> None:
    """Refuse a model that labels tokens.

    Raises:
        InvalidRequest: it does.
    """
    if classifier.traits.task == "token":
        raise InvalidRequest(
            f"{classifier.name} labels tokens, and answers of this route have no entities; use "
            "/v1/classify"
        )


def function_of_transformers(classifier: Classifier) -> Function:
    """Return what the pipeline of transformers applies to the model's logits."""
    if classifier.bundle.manifest.value_is_logit:
        return "sigmoid"
    return FUNCTIONS[classifier.traits.task]


def label_scores(
    answered: Classification, function: Function | None = None, top_k: int | None = None
) -> list[list[LabelScore]]:
    """Return the labels of each input, the answer first and then by score.

    Args:
        answered: a classification by a model that does not label tokens.
        function: function from logits to scores; by default that of the model's task.
        top_k: how many; None for all.

    Raises:
        InvalidRequest: an answer has nothing that the function applies to.
    """
    traits, answers = answered.classifier.traits, answered.answers
    scores = score_rows(answers, function or FUNCTIONS[traits.task])
    found = []
    for answer, row in zip(answers, scores.tolist(), strict=True):
        order = ranked(row)
        # A voting rule may answer with another label than that of the highest score.
        if answer.label >= 0 and traits.task == "single_label":
            order.remove(answer.label)
            order.insert(0, answer.label)
        found.append([LabelScore(i, traits.labels[i], short(row[i])) for i in order[:top_k]])
    return found


def score_rows(answers: Sequence[Answer], function: Function) -> NDArray[np.float32]:
    """Return (rows, labels) a score for every label.

    Raises:
        InvalidRequest: an answer has nothing that the function applies to.
    """
    if function == "none":
        return np.array([answer.logits for answer in answers])
    logits = np.array([answer.score_logits for answer in answers])
    scores = softmax(logits) if function == "softmax" else sigmoid(logits)
    for i, answer in enumerate(answers):
        if answer.scores is not None:
            if function == "sigmoid":
                raise InvalidRequest("sigmoid: a text that was cut into windows has no logits")
            scores[i] = answer.scores
    return scores


def ranked(scores: Sequence[float]) -> list[int]:
    """Return the label ids, the best first; of equals, the first."""
    return sorted(range(len(scores)), key=scores.__getitem__, reverse=True)


def entities(answered: Classification) -> list[list[dict[str, Any]]]:
    """Return the entities of each input as JSON; the model labels tokens."""
    reader = answered.classifier.entities
    assert reader is not None
    inputs = zip(answered.answers, answered.tokens, strict=True)
    return [entities_of(reader, answer, each, answered.aggregation) for answer, each in inputs]


def entities_of(
    reader: EntityReader, said: Answer | ExitRecord, tokens: Tokens, aggregation: Aggregation
) -> list[dict[str, Any]]:
    """Return the entities of an input as JSON, from the answer or what an exit said of it."""
    assert tokens.counted is not None
    assert tokens.word_spans is not None
    found = reader.read(
        said.logits, tokens.counted, tokens.word_spans, aggregation, said.score_logits
    )
    return [_entity(entity) for entity in found]


def _entity(entity: Entity) -> dict[str, Any]:
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


# Header of guardrails under a flag that defers: whether each text is deferred.
DEFERRED: Final = "X-Offramp-Deferred"
# What `exit_headers` returns, and the one above.
ANSWERED: Final = (
    "X-Offramp-Exit-Layer",
    "X-Offramp-Exit-Reason",
    "X-Offramp-Policy-Version",
    "X-Offramp-Score-Scale",
    "X-Offramp-Exit-Rule",
    "X-Offramp-Certificate",
    "X-Offramp-Degraded",
    "X-Offramp-Cached",
    DEFERRED,
)

# Longer lists of layers and reasons are cut: proxies refuse heads of more than 8 KiB.
MAX_LISTED: Final = 256

# Exit rules may add reasons, so the type is a text.
ReasonName = Annotated[
    str, Field(json_schema_extra={"enum": [r.label for r in Reason if r is not Reason.STAYS]})
]
Signal = Annotated[
    float | None,
    Field(
        description="The rule's signal at this exit, such as the entropy in nats, the confidence, "
        "or the number of agreeing exits; null for rules without one. At layer 0 the table's "
        "confidence."
    ),
]

ShownScale = Annotated[
    ScoreScale,
    Field(
        description="`full_depth`: scores of early exits are mapped to what full depth's would be, "
        "as fitted at calibration; the label never changes by it. `raw`: nothing was fitted, and "
        "the same text may have another score at another exit."
    ),
]


class ExitReport(SparseModel):
    """Where and why an input left."""

    layer: int = Field(
        description="Transformer layers executed for this answer; 0 where the model's table, or "
        "the small model in front, answered before the first."
    )
    small_layer: int | None = Field(
        default=None,
        description="Only where the small model in front answered: the layer of its exit.",
    )
    answered_by: int = Field(
        description="The layer whose exit head gave the answer: the exit layer, unless the rule "
        "answers with an earlier, more confident exit."
    )
    layers: int = Field(description="Layers of the model.")
    reason: ReasonName
    signal: Signal
    cached: Literal[True] | None = Field(
        default=None,
        description="Only with `--answer-cache`, and if the answer was computed for an earlier "
        "text of the same tokens, and is given again.",
    )


def exit_layer(traits: Traits, exit_index: int) -> dict[str, int]:
    """Return the layer of an exit as JSON; of the small model in front, its own layer too."""
    own = traits.small_layer(exit_index)
    return {"layer": traits.layer_of(exit_index)} | ({} if own is None else {"small_layer": own})


def exit_report(traits: Traits, answer: Answer) -> dict[str, Any]:
    """Return an `ExitReport` as JSON."""
    report = {
        **exit_layer(traits, answer.exit_index),
        "answered_by": traits.layer_of(answer.head_index),
        "layers": traits.exits[-1],
        "reason": answer.reason.label,
        "signal": short(answer.signal),
    }
    return report | {"cached": True} if answer.cached else report


def exit_headers(answered: Classification) -> dict[str, str]:
    """Return headers that say where and why each input left, in the order of the inputs."""
    layer_of, answers = answered.classifier.traits.layer_of, answered.answers[:MAX_LISTED]
    headers = {
        "X-Offramp-Exit-Layer": ",".join([str(layer_of(a.exit_index)) for a in answers]),
        "X-Offramp-Exit-Reason": ",".join([a.reason.label for a in answers]),
        "X-Offramp-Policy-Version": str(answered.policy_version),
        "X-Offramp-Score-Scale": answered.classifier.scores.score_scale,
    }
    if answered.resolution:
        texts = answered.resolution.texts
        headers["X-Offramp-Exit-Rule"] = texts["exit_rule"]
        headers["X-Offramp-Certificate"] = texts["certificate"]
    if answered.degraded:
        headers["X-Offramp-Degraded"] = ",".join(answered.degraded)
    if any(a.cached for a in answers):
        headers["X-Offramp-Cached"] = ",".join([str(a.cached).lower() for a in answers])
    return headers
