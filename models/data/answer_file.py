"""A file of another classifier's answers: texts with a label, and scores where they are known."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.data.columns import Columns, UnknownColumns, choose, fold
from models.data.datasets import read_dataset
from models.data.label_ids import label_order
from models.data.notes import note
from models.data.records import Record, read_records
from models.errors import UnusableData
from serve.rules.signals import decisions, logits_of
from serve.rules.traits import Task, listed
from serve.tokenization.tokenizer import Text

SCORES = "scores"
# The logit of a label that is given without a score; of others its negative.
_SURE = 20.0


class AnswerFile(NamedTuple):
    """The answers of a file.

    Attributes:
        logits: (labels,) by text; where the file has no scores, they just say the answer.
        scored: whether the file has scores.
    """

    logits: Mapping[Text, NDArray[np.float32]]
    scored: bool

    def of(self, path: Path, texts: Sequence[Text]) -> NDArray[np.float32]:
        """Return (rows, labels) the answers to texts.

        Raises:
            UnusableData: the file lacks one.
        """
        missing = [text for text in texts if _key(text) not in self.logits]
        if missing:
            raise UnusableData(
                f"{path}: answers to {len(missing)} of {len(texts)} texts are missing, the first "
                f"is {missing[0].text[:40]!r}; the file needs every text with its answer"
            )
        return np.stack([self.logits[_key(text)] for text in texts])


def read_answer_file(path: Path, task: Task, labels: Sequence[str], columns: Columns) -> AnswerFile:
    """Read a file of answers: a text's first line counts.

    Args:
        path: a labelled file in any format but that of tagged sentences. A column `scores` may hold
            a JSON object with the score of each label.
        task: the model's.
        labels: the model's.
        columns: those that the user names.

    Raises:
        UnusableData: an unreadable file, other labels, or scores that do not fit.
    """
    if task == "token":
        raise UnusableData(
            f"{path}: a file of answers is for whole texts; of a tagger, name the folder"
        )
    records = list(read_records(path))
    if not records:
        raise UnusableData(f"{path}: the file has no rows")
    try:
        texts = choose(tuple(records[0].values), Columns(columns.texts), task).texts
    except UnknownColumns as error:
        raise records[0].unusable_header(f"{error}; each answer stands beside its text") from None
    examples = read_dataset(path, task, labels, Columns(texts, also=SCORES)).examples
    answers = np.array([_logits(task, len(labels), e.label) for e in examples], np.float32)
    keys = [_key(Text(e.text_a, e.text_b)) for e in examples]
    first = dict(zip(reversed(keys), reversed(answers), strict=True))
    several = {key for key, own in zip(keys, answers, strict=True) if (own != first[key]).any()}
    if several:
        note(f"{path}: texts with several answers, of which the first counts: {len(several)}")
    scored = any(fold(name) == SCORES for name in records[0].values) and task != "regression"
    if scored:
        answers = _with_scores(path, task, labels, records, answers)
    return AnswerFile(dict(zip(reversed(keys), reversed(answers), strict=True)), scored)


def _key(text: Text) -> Text:
    return Text(text.text.strip(), text.text_pair.strip() if text.text_pair else None)


def _logits(task: Task, num_labels: int, label: Any) -> NDArray[np.float32]:
    """Return logits that just say an answer; of a regression, the value."""
    if task == "regression":
        return np.array([label], np.float32)
    marks = np.eye(num_labels)[label] if task == "single_label" else np.array(label)
    return np.where(marks > 0, _SURE, -_SURE).astype(np.float32)


def _with_scores(
    path: Path,
    task: Task,
    labels: Sequence[str],
    records: Sequence[Record],
    answers: NDArray[np.float32],
) -> NDArray[np.float32]:
    if len(records) != len(answers):
        raise UnusableData(f"{path}: rows without a label; leave them out")
    found = np.stack([_scores(record, labels) for record in records])
    logits = logits_of(task, found)
    other = decisions(task, logits) != decisions(task, answers)
    if other.any():
        record = records[int(np.flatnonzero(other.reshape(len(other), -1).any(axis=1))[0])]
        raise record.unusable("the label is not what the scores say")
    return logits


def _scores(record: Record, labels: Sequence[str]) -> NDArray[np.float32]:
    """Return (labels,) the scores of a record, matched by name."""
    value = next((v for name, v in record.values.items() if fold(name) == SCORES), None)
    try:
        read: Any = json.loads(value) if isinstance(value, str) else value
        scores = {str(name): float(score) for name, score in dict(read).items()}
    except (TypeError, ValueError):
        raise record.unusable(
            f"{SCORES}: expected a JSON object with the score of each label, not "
            f"{str(value)[:40]!r}"
        ) from None
    names = list(scores)
    order = label_order(names, labels)
    if order is None:
        raise record.unusable(
            f"{SCORES} has {listed(names)}; the model's labels are {listed(labels)}"
        )
    found = np.array([scores[names[place]] for place in order], np.float32)
    if not ((found >= 0) & (found <= 1)).all():
        raise record.unusable(f"{SCORES}: must be probabilities from 0 to 1")
    return found
