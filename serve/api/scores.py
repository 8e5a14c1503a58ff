"""Answers as scores of labels, and as entities, as more than one dialect shows them."""

from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from serve.api.json_encoding import short
from serve.classifier.classification import Classification
from serve.classifier.classifier import Classifier
from serve.engine.row import Answer, ExitRecord
from serve.errors import InvalidRequest
from serve.rules.signals import sigmoid, softmax
from serve.rules.traits import Task
from serve.tokenization.entities import Aggregation, Entity, EntityReader
from serve.tokenization.tokenizer import Tokens

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
