"""A labelled file as one task's examples, and which task a file is for."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, get_args

from models.data.examples import LABELS_COLUMNS, VALUE_COLUMNS, Example, read_rows
from models.data.records import read_records
from models.data.sentences import CONLL, TAG_COLUMNS, has_tag_header, read_sentences
from models.data.targets import (
    as_number,
    label_names,
    labels_file,
    set_names,
    tag_names,
    to_examples,
    to_sets,
    to_values,
    to_words,
)
from models.errors import UnusableData
from serve.rules.traits import Task

TASKS: tuple[Task, ...] = get_args(Task)
# What a regression's one number is called unless the user says otherwise.
VALUE_NAME = "score"


class Dataset(NamedTuple):
    """Examples and the names of their labels by id; of a regression, the value's one name."""

    labels: list[str]
    examples: list[Example]


def read_dataset(path: Path, task: Task, labels: Sequence[str] = ()) -> Dataset:
    """Read a file of labelled text.

    Args:
        path: see `models.data.examples` and, for `token`, `models.data.sentences`.
        task: what its labels mean.
        labels: their names by id; none takes them from `labels.json`, or from the data.

    Raises:
        UnusableData: an unreadable file, or a line that does not fit the task.
    """
    return _READERS[task](path, list(labels))


def task_of(path: Path) -> Task:
    """Return the task that a file tells by itself, else `single_label`.

    Token classification is told by the file's suffix, its header or its lists of tags;
    several labels by a column `labels`; a regression by a column `score` without `label`, or
    by labels that are all numbers and not all whole ones. `labels.json` beside it may say
    `"task"`.

    Raises:
        UnusableData: the file cannot be read.
    """
    said = labels_file(path)
    if said.get("task") in TASKS:
        return said["task"]
    if path.suffix.lower() in CONLL or (path.is_file() and has_tag_header(path)):
        return "token"
    columns: set[str] = set()
    labels: set[str] = set()
    for _, values in read_records(path):
        columns |= values.keys()
        labels.add(str(values.get("label")))
    return _told_by(columns, labels)


def _told_by(columns: set[str], labels: set[str]) -> Task:
    if columns & set(TAG_COLUMNS):
        return "token"
    if "label" not in columns:
        return "multi_label" if "labels" in columns else _if("score" in columns)
    numbers = [as_number(label) for label in labels]
    return _if(None not in numbers and any(not n.is_integer() for n in numbers if n is not None))


def _if(regression: bool) -> Task:
    return "regression" if regression else "single_label"


def _single_label(path: Path, labels: list[str]) -> Dataset:
    rows = read_rows(path)
    labels = labels or label_names(path, rows)
    return Dataset(labels, to_examples(path, rows, labels))


def _multi_label(path: Path, labels: list[str]) -> Dataset:
    rows = read_rows(path, LABELS_COLUMNS)
    labels = labels or set_names(path, rows)
    return Dataset(labels, to_sets(path, rows, labels))


def _regression(path: Path, labels: list[str]) -> Dataset:
    if len(labels) > 1:
        raise UnusableData(
            f"a regression has one value, which needs one name, not {len(labels)}: "
            f"{', '.join(labels)}"
        )
    examples = to_values(path, read_rows(path, VALUE_COLUMNS))
    return Dataset(labels or [VALUE_NAME], examples)


def _token(path: Path, labels: list[str]) -> Dataset:
    sentences = read_sentences(path)
    labels = labels or tag_names(path, sentences)
    return Dataset(labels, to_words(path, sentences, labels))


_READERS: dict[Task, Callable[[Path, list[str]], Dataset]] = {
    "single_label": _single_label,
    "multi_label": _multi_label,
    "regression": _regression,
    "token": _token,
}
