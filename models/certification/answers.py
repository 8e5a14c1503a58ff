"""What every exit answers, as the server does by default, and whether that is right."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from models.certification.texts import LabelledText
from models.data.alignment import IGNORED, tag_tokens
from models.evaluation.bundle_recording import BundleRecording
from models.evaluation.entities import are_entity_tags, entities_of
from serve.bundle.loader import Bundle
from serve.rules.multipart import decisions
from serve.rules.replay import Recording
from serve.rules.traits import Task
from serve.tokenization.entities import EntityReader
from serve.tokenization.inputs import InputReader
from serve.tokenization.tokenizer import Tokens

Answers: TypeAlias = NDArray[np.int64]  # (exits, rows), equal where the answers are equal
Right: TypeAlias = NDArray[np.bool_]  # (exits, rows)

# What a text must have right, by task.
METRICS: dict[Task, str] = {
    "single_label": "accuracy",
    "multi_label": "exact match",
    "token": "all entities right",
}


def answers(bundle: Bundle, recording: BundleRecording, tokens: Sequence[Tokens]) -> Answers:
    """Return numbers of the exits' answers: of labels, sets of labels, or sets of entities.

    Args:
        bundle: that was recorded; no regression.
        recording: of its exits.
        tokens: of the texts.
    """
    task = bundle.manifest.task
    if task == "token":
        return _entities(bundle, recording.logits, tokens)
    decided = decisions(task, recording.logits)
    if task == "single_label":
        return decided.astype(np.int64)
    return _numbered(decided, lambda row, marks: marks.tobytes())


def right_answers(bundle: Bundle, logits: Recording, texts: Sequence[LabelledText]) -> Right:
    """Return whether the exits' answers are right: all of the labels, or all of the entities."""
    return _RIGHT[bundle.manifest.task](bundle, logits, texts)


def _entities(bundle: Bundle, logits: Recording, tokens: Sequence[Tokens]) -> Answers:
    inputs = InputReader(bundle.tokenizer_path, bundle.manifest)
    reader = EntityReader(bundle.manifest.labels, inputs.word_span_finder)

    def read(row: int, of_tokens: NDArray[np.float32]) -> frozenset[Any]:
        counted, spans = tokens[row].counted, tokens[row].word_spans
        assert counted is not None
        assert spans is not None
        found = reader.read(of_tokens[: len(counted)], counted, spans, "simple")
        return frozenset((entity.label, entity.tokens) for entity in found)

    return _numbered(logits, read)


def _numbered(values: NDArray[Any], read: Callable[[int, Any], Any]) -> Answers:
    known: dict[Any, int] = {}
    numbers = np.empty(values.shape[:2], np.int64)
    for index, row in np.ndindex(*numbers.shape):
        numbers[index, row] = known.setdefault(read(row, values[index, row]), len(known))
    return numbers


def _labels_right(bundle: Bundle, logits: Recording, texts: Sequence[LabelledText]) -> Right:
    right: Right = decisions("single_label", logits) == np.array([each.label for each in texts])
    return right


def _sets_right(bundle: Bundle, logits: Recording, texts: Sequence[LabelledText]) -> Right:
    marks = np.array([each.label for each in texts], np.float64) > 0.5
    right: Right = (decisions("multi_label", logits) == marks).all(axis=-1)
    return right


def _entities_right(bundle: Bundle, logits: Recording, texts: Sequence[LabelledText]) -> Right:
    """Compare by words, which are tagged by their first token as in training."""
    names = np.array(bundle.manifest.labels)
    read = _entity_set if are_entity_tags(bundle.manifest.labels) else tuple
    tagged = [(each.text.text, each.label) for each in texts if isinstance(each.label, list)]
    aligned = tag_tokens(bundle.tokenizer_path, tagged, bundle.manifest.max_tokens)
    found = decisions("token", logits)
    right = np.empty(found.shape[:2], np.bool_)
    for row, (tags, _) in enumerate(aligned):
        words = np.flatnonzero(np.array(tags) != IGNORED)
        gold = read(names[np.array(tags)[words]])
        for index in range(len(found)):
            right[index, row] = read(names[found[index, row, words]]) == gold
    return right


def _entity_set(tags: Sequence[str]) -> Any:
    return frozenset(entities_of(tags))


_RIGHT: dict[Task, Callable[[Bundle, Recording, Sequence[LabelledText]], Right]] = {
    "single_label": _labels_right,
    "multi_label": _sets_right,
    "token": _entities_right,
}
