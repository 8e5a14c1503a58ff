"""Reading a labelled file for a task, and detecting a file's task."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, get_args

from models.data.examples import LABELS_COLUMNS, VALUE_COLUMNS, Example, Row, Target, read_rows
from models.data.labels import (
    as_number,
    label_names,
    labels_file,
    set_names,
    tag_names,
    to_id,
    to_marks,
    to_value,
    to_words,
)
from models.data.records import read_records
from models.data.tagged_sentences import CONLL, TAG_COLUMNS, has_tag_header, read_sentences
from models.errors import UnusableData
from serve.rules.traits import Task

TASKS: tuple[Task, ...] = get_args(Task)
# Default name of a regression's value.
VALUE_NAME = "score"


class Dataset(NamedTuple):
    """Examples, and the names of their labels by id; for a regression, the name of its value."""

    labels: list[str]
    examples: list[Example]


def read_dataset(path: Path, task: Task, labels: Sequence[str] = ()) -> Dataset:
    """Read a file of labelled text.

    Args:
        path: formats are in `models.data.examples` and, for `token`,
            `models.data.tagged_sentences`.
        task: what the labels mean.
        labels: label names by id; if empty they come from `labels.json` or from the data.

    Raises:
        UnusableData: an unreadable file, or a line that does not fit the task.
    """
    return _READERS[task](path, list(labels))


def task_of(path: Path) -> Task:
    """Return the task that a file's form shows, by default `single_label`.

    `"task"` in `labels.json` decides. Token classification shows in the suffix, the header or
    lists of tags; several labels in a column `labels`; a regression in a column `score` without
    `label`, or in labels that are numbers but not all whole numbers.

    Raises:
        UnusableData: the file cannot be read.
    """
    stated = labels_file(path).get("task")
    if stated in TASKS:
        return stated
    if path.suffix.lower() in CONLL or (path.is_file() and has_tag_header(path)):
        return "token"
    columns: set[str] = set()
    labels: set[str] = set()
    for _, values in read_records(path):
        columns |= values.keys()
        labels.add(str(values.get("label")))
    return _task_of_columns(columns, labels)


def _task_of_columns(columns: set[str], labels: set[str]) -> Task:
    if columns & set(TAG_COLUMNS):
        return "token"
    if "label" not in columns:
        is_value = "score" in columns
        return (
            "multi_label" if "labels" in columns else "regression" if is_value else "single_label"
        )
    numbers = [as_number(label) for label in labels]
    fractions = [n for n in numbers if n is not None and not n.is_integer()]
    return "regression" if fractions and None not in numbers else "single_label"


def _single_label(path: Path, labels: list[str]) -> Dataset:
    rows = read_rows(path)
    labels = labels or label_names(path, rows)
    return _dataset(labels, rows, to_id(path, labels))


def _multi_label(path: Path, labels: list[str]) -> Dataset:
    rows = read_rows(path, LABELS_COLUMNS)
    labels = labels or set_names(path, rows)
    return _dataset(labels, rows, to_marks(path, labels))


def _regression(path: Path, labels: list[str]) -> Dataset:
    if len(labels) > 1:
        raise UnusableData(
            f"a regression has one value, which needs one name, not {len(labels)}: "
            f"{', '.join(labels)}"
        )
    rows = read_rows(path, VALUE_COLUMNS)
    return _dataset(labels or [VALUE_NAME], rows, partial(to_value, path))


def _dataset(labels: list[str], rows: list[Row], target: Callable[[Row], Target]) -> Dataset:
    return Dataset(labels, [Example(row.text_a, row.text_b, target(row)) for row in rows])


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
