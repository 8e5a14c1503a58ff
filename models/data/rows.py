"""The rows of a data file: its texts, and its labels as they are written there."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from models.data.columns import (
    GOLD,
    KNOWN,
    NO_GOLD,
    TOKENS,
    Choice,
    Columns,
    UnknownColumns,
    choose,
    fold,
    reads_as_text,
)
from models.data.notes import note
from models.data.records import Record, is_plain, read_records
from models.data.unread import Unread, columns_of_marks, joined, unnested
from models.errors import UnusableData
from serve.rules.traits import Task

# Blanks, and the marks of byte order and of width 0 that joined and copied files have.
_AROUND = re.compile(r"^[\s\ufeff\u200b]+|[\s\ufeff\u200b]+$")


class Row(NamedTuple):
    """An example with its label as in the file.

    Attributes:
        label: several labels are a list, or a text with `|` between them; empty if there is none.
    """

    line: int
    text_a: str
    text_b: str | None
    label: str | list[str]


def read_rows(path: Path, task: Task | None, columns: Columns = KNOWN) -> list[Row]:
    """Read a text, perhaps a second one, and a label from each record.

    Rows of SNLI and MNLI without an agreed label are left out, and a note says so. Another note
    names the columns that are not read.

    Args:
        path: a table of texts, as `models.data.records` reads it.
        task: what the label means; only `multi_label` allows an empty one. None if no label is
            needed.
        columns: those that the user names.

    Raises:
        UnusableData: an unreadable file, no rows, columns that are not known, a value that is no
            text, a label that is missing, or a column that is not read though it holds texts.
    """
    return list(each_row(path, task, columns))


def each_row(path: Path, task: Task | None, columns: Columns = KNOWN) -> Iterator[Row]:
    """Yield what `read_rows` returns; some of its errors come after the last row."""
    if task and columns == KNOWN and is_plain(path):
        raise UnusableData(
            f"{path}: a text per line, and no labels; `offramp calibrate --unlabelled` and "
            "`offramp predict` take it"
        )
    reader = _RowReader(path, task, columns)
    yield from reader.rows(read_records(path))
    reader.check()


def read_labels(path: Path, columns: Columns) -> tuple[str, list[object]]:
    """Return the name of the label's column, empty if there is none, and its values as written."""
    reader = _RowReader(path, None, columns)
    name, values = "", []
    for record in read_records(path):
        if found := reader.choice(record).label:
            name = found
            values.append(record.values[name])
    return name, values


class _RowReader:
    """What is known of a file while its records become rows."""

    def __init__(self, path: Path, task: Task | None, columns: Columns) -> None:
        self._path = path
        self._task = task
        self._columns = columns
        self._choices: dict[tuple[str, ...], Choice] = {}
        self._unread = Unread(path)
        self._num_without_gold = 0
        self._of_several_lines: list[tuple[Record, Choice]] = []
        self._labels: set[str] = set()
        self._num_rows = self._num_single = 0

    def rows(self, records: Iterable[Record]) -> Iterator[Row]:
        for record in records:
            choice = self.choice(record)
            self._watch(record, choice)
            label = _label(record, choice, self._task)
            if self._task and label == NO_GOLD and fold(choice.label or "") == GOLD:
                self._num_without_gold += 1
                continue
            first, *second = (_text(record, name, i > 0) for i, name in enumerate(choice.texts))
            row = Row(record.line, first, (second[0] or None) if second else None, label)
            self._labels.add(str(label))
            self._num_rows += 1
            self._num_single += row.text_b is None
            yield row

    def check(self) -> None:
        """Refuse no rows, and texts that have swallowed rows; tell what was left out."""
        if not self._num_rows:
            raise UnusableData(f"{self._path}: the file has no rows")
        for record, choice in self._of_several_lines:
            _check_swallowed(record, choice, self._labels)
        if self._num_without_gold:
            why = f"{GOLD} is {NO_GOLD}"
            note(f"{self._path}: rows left out because {why}: {self._num_without_gold}")
        if 0 < self._num_single < self._num_rows:
            single = f"rows whose second text is empty, read as one text: {self._num_single}"
            note(f"{self._path}: {single}")
        self._unread.tell(labelled=self._task is not None)

    def choice(self, record: Record) -> Choice:
        """Return the columns to read; JSON has names in every record."""
        names = tuple(record.values)
        if names not in self._choices:
            try:
                self._choices[names] = choose(names, self._columns, self._task)
            except UnknownColumns as error:
                marks = columns_of_marks(record.values) if self._columns.label is None else []
                command = unnested(self._path, names)
                if self._task and marks[1:]:
                    command = command or joined(self._path, marks)
                raise record.unusable_header(
                    ". ".join(filter(None, [str(error), command]))
                ) from None
        return self._choices[names]

    def _watch(self, record: Record, choice: Choice) -> None:
        """Refuse a column that is not read and holds texts: it may be half of the input."""
        for name in choice.doubtful:
            value = record.values[name]
            is_words = isinstance(value, list) and fold(name) in TOKENS
            if reads_as_text(value) and not is_words:
                wished = {",".join(choice.texts), f"{choice.texts[0]},{name}"}
                raise record.unusable(
                    f"the column {name} holds a text too, {str(value)[:40]!r}: name the text, or "
                    f"the two of a pair, as in --text-columns {' or '.join(sorted(wished))}"
                )
        self._unread.see(record.values, choice.unread, choice.label)
        is_table = record.line > record.header
        if is_table and choice.label and any("\n" in str(v) for v in record.values.values()):
            self._of_several_lines.append((record, choice))


def _text(record: Record, name: str, may_be_empty: bool) -> str:
    """Return a text without blanks around it; a second text may be empty, or null."""
    value = record.values[name]
    if value is None and may_be_empty:
        return ""
    if not isinstance(value, str):
        if isinstance(value, dict | list):
            remedy = (
                "each line holds one row, as pandas' to_json(orient='records', lines=True) writes"
            )
        else:
            remedy = "leave such rows out" if value is None else "put it in quotes if it is"
        raise record.unusable(f"{name} is {value!r:.40}, and no text; {remedy}")
    if not may_be_empty and not value.strip():
        raise record.unusable(f"the text is empty: {name} holds none")
    return value.strip()


def _label(record: Record, choice: Choice, task: Task | None) -> str | list[str]:
    """Return a label as text; empty if the task needs none."""
    value = record.values[choice.label] if choice.label else ""
    parts = value if isinstance(value, list) else [value]
    if task and any(isinstance(part, dict | list) or part is None for part in parts):
        raise record.unusable(
            f"the label is {value!r:.40}; a name, a number, or a list of them was expected"
        )
    marks = isinstance(value, list) and any(isinstance(part, float | bool) for part in value)
    if marks and task not in (None, "regression"):
        raise record.unusable(
            f"the label is {value!r:.40}; a list holds names or ids of the labels that the row "
            "has, and not a mark for each label"
        )
    label = ["" if part is None else _AROUND.sub("", str(part)) for part in parts]
    if task not in (None, "multi_label") and (not label or "" in label):
        raise record.unusable(f"the label is empty: {choice.label} holds none")
    return label if isinstance(value, list) else label[0]


def _check_swallowed(record: Record, choice: Choice, labels: set[str]) -> None:
    """Refuse a text whose lines look like rows: a stray quote has begun it before them.

    Such a line has a label in the label's column, counted from either end.
    """
    names = list(record.values)
    place = names.index(str(choice.label))
    separator = "," if record.path.suffix.lower() == ".csv" else "\t"
    texts = [value for value in record.values.values() if isinstance(value, str) and "\n" in value]
    for line in (line for text in texts for line in text.split("\n")):
        cells = [cell.strip(' "') for cell in line.split(separator)]
        placed = {cells[i] for i in (place, place - len(names)) if -len(cells) <= i < len(cells)}
        if 1 < len(cells) <= len(names) and labels & placed:
            raise record.unusable(
                f"a text with quotes around it holds a line like a row, {line[:40]!r}: double a "
                "quote that is part of a text, or write the file as .jsonl"
            )
