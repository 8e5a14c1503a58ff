"""Answers as lists of labels and scores, as most dialects show them."""

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from serve.api.classification import Classification
from serve.api.json_encoding import short
from serve.bundle.manifest import Manifest
from serve.classifier.classifier import Classifier
from serve.engine.row import Answer
from serve.errors import InvalidRequest
from serve.rules.signals import sigmoid, softmax

Function = Literal["softmax", "sigmoid", "none"]


class LabelScore(NamedTuple):
    """A label and its probability, or what else was asked for; equal to that of `/v1/classify`."""

    label_id: int
    label: str
    score: float | None


def check_labels_texts(classifier: Classifier) -> None:
    """Refuse a model that labels tokens, before or after it has answered.

    Raises:
        InvalidRequest: it does.
    """
    if classifier.bundle.manifest.task == "token":
        raise InvalidRequest(
            f"{classifier.name} labels tokens, for which this route has no form; use /v1/classify"
        )


def label_scores(
    answered: Classification, function: Function | None = None, top_k: int | None = None
) -> list[list[LabelScore]]:
    """Return the labels of each input, the answer first and then by score.

    Args:
        answered: by a model that does not label tokens.
        function: from logits to scores; by default that of the model's task.
        top_k: how many; None for all.

    Raises:
        InvalidRequest: the model labels tokens.
    """
    check_labels_texts(answered.classifier)
    manifest = answered.classifier.bundle.manifest
    wanted = function or _FUNCTIONS[manifest.task]
    return [_of_answer(manifest, each, wanted)[:top_k] for each in answered.classified.answers]


_FUNCTIONS: dict[str, Function] = {
    "single_label": "softmax",
    "multi_label": "sigmoid",
    "regression": "none",
}


def scores_of(answer: Answer, function: Function) -> NDArray[np.float32]:
    """Return a score for every label.

    Raises:
        InvalidRequest: the answer has nothing that the function applies to.
    """
    match function:
        case "softmax":
            return softmax(answer.logits) if answer.scores is None else answer.scores
        case "sigmoid":
            if answer.scores is not None:
                raise InvalidRequest("sigmoid: a text that was cut into windows has no logits")
            return sigmoid(answer.logits)
    return answer.logits


def _of_answer(manifest: Manifest, answer: Answer, function: Function) -> list[LabelScore]:
    scores = scores_of(answer, function)
    order = [int(i) for i in (-scores).argsort(kind="stable")]
    # A voting rule may answer with another label than that of the highest score.
    if answer.label >= 0 and manifest.task == "single_label":
        order.sort(key=lambda i: i != answer.label)
    return [LabelScore(i, manifest.labels[i], short(scores[i])) for i in order]
