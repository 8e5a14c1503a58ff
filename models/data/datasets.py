"""Reading a labelled file for a task, and detecting a file's task."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, cast

from models.data.columns import KNOWN, SETS, VALUES, Columns, fold
from models.data.examples import Example, Target
from models.data.label_ids import as_number, labels_file, listed_names
from models.data.labels import (
    label_names,
    set_names,
    tag_names,
    to_id,
    to_marks,
    to_value,
    to_words,
)
from models.data.rows import Row, read_labels, read_rows
from models.data.tagged_sentences import is_tagged, read_sentences
from models.errors import UnusableData
from serve.rules.traits import Task

# Default name of a regression's value.
VALUE_NAME = "score"


class Dataset(NamedTuple):
    """Examples, and the names of their labels by id; for a regression, the name of its value."""

    labels: list[str]
    examples: list[Example]


def read_dataset(
    path: Path, task: Task, labels: Sequence[str] = (), columns: Columns = KNOWN
) -> Dataset:
    """Read a file of labelled text.

    Args:
        path: formats are in `models.data.records` and `models.data.tagged_sentences`.
        task: what the labels mean.
        labels: label names by id; if empty they come from `labels.json` or from the data.
        columns: those that the user names.

    Raises:
        UnusableData: an unreadable file, or a line that does not fit the task.
    """
    return _READERS[task](path, list(labels), columns)


def task_of(path: Path, columns: Columns = KNOWN) -> Task:
    """Return the task that a file's form shows, by default `single_label`.

    `"task"` in `labels.json` decides. Token classification shows in the suffix, the header, tags at
    the ends of lines or lists of tags; several labels in a column `labels` or in lists; a
    regression in a column such as `score` without `label`, or in labels that are numbers but not
    all whole numbers.

    Raises:
        UnusableData: the file cannot be read.
    """
    if stated := labels_file(path).get("task"):
        return cast("Task", stated)
    if is_tagged(path):
        return "token"
    name, labels = read_labels(path, columns)
    if fold(name) in SETS or any(isinstance(label, list) for label in labels):
        return "multi_label"
    if fold(name) in VALUES:
        return "regression"
    numbers = [as_number(str(label)) for label in labels]
    fractions = [n for n in numbers if n is not None and not n.is_integer()]
    return "regression" if fractions and None not in numbers else "single_label"


def _single_label(path: Path, labels: list[str], columns: Columns) -> Dataset:
    rows = read_rows(path, "single_label", columns)
    labels = labels or label_names(path, rows)
    return _dataset(labels, rows, to_id(path, labels))


def _multi_label(path: Path, labels: list[str], columns: Columns) -> Dataset:
    rows = read_rows(path, "multi_label", columns)
    labels = labels or set_names(path, rows)
    if len(labels) == 2 and all(sorted(row.label) == ["0", "1"] for row in rows):
        raise UnusableData(
            f"{path}: every row's list is [0, 1] or [1, 0]: a list holds names or ids of the "
            "labels that the row has, and not a mark for each label"
        )
    return _dataset(labels, rows, to_marks(path, labels))


def _regression(path: Path, labels: list[str], columns: Columns) -> Dataset:
    names = listed_names(path)
    labels = labels or (names if len(names) == 1 else [])  # several are of another task
    if len(labels) > 1:
        raise UnusableData(
            f"a regression has one value, which needs one name, not {len(labels)}: "
            f"{', '.join(labels)}"
        )
    rows = read_rows(path, "regression", columns)
    data = _dataset(labels or [VALUE_NAME], rows, partial(to_value, path))
    if {example.label for example in data.examples} == {-1.0}:
        raise UnusableData(
            f"{path}: every value is -1, which marks rows without a value, as in GLUE's test files "
            "of the datasets library; take a file with values"
        )
    return data


def _dataset(labels: list[str], rows: list[Row], target: Callable[[Row], Target]) -> Dataset:
    return Dataset(labels, [Example(row.text_a, row.text_b, target(row)) for row in rows])


def _token(path: Path, labels: list[str], columns: Columns) -> Dataset:
    sentences = read_sentences(path, columns)
    labels = labels or tag_names(path, sentences)
    return Dataset(labels, to_words(path, sentences, labels))


_READERS: dict[Task, Callable[[Path, list[str], Columns], Dataset]] = {
    "single_label": _single_label,
    "multi_label": _multi_label,
    "regression": _regression,
    "token": _token,
}
