"""Labelled texts: the columns of a data file."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, TypeAlias

from models.data.records import read_records
from models.errors import UnusableData

TEXT_A_COLUMNS = ("text_a", "text", "sentence", "sentence1")
TEXT_B_COLUMNS = ("text_b", "sentence2")
LABEL_COLUMNS = ("label",)
LABELS_COLUMNS = ("labels", "label")
VALUE_COLUMNS = ("label", "score")


class Word(NamedTuple):
    """A tagged word of a text: characters `start` up to, not including, `end`, and the tag's id."""

    start: int
    end: int
    tag: int


# A label's id; 1.0 or 0.0 for each label; a regression's value; or a text's tagged words.
Target: TypeAlias = int | tuple[float, ...] | float | list[Word]


class Example(NamedTuple):
    """One text, or a pair of texts, with the correct answer."""

    text_a: str
    text_b: str | None
    label: Target


class Row(NamedTuple):
    """An example with its label as in the file.

    Attributes:
        label: several labels are a list, or a text with `|` between them.
    """

    line: int
    text_a: str
    text_b: str | None
    label: str | list[str]


def read_rows(path: Path, columns: tuple[str, ...] = LABEL_COLUMNS) -> list[Row]:
    """Read a label, a text, and optionally a second text from each record.

    Args:
        path: `.tsv`, `.csv` or `.jsonl`.
        columns: possible label columns; the first one present is used. Only rows of
            `LABELS_COLUMNS` may have an empty label.

    Raises:
        UnusableData: an unreadable file, a missing column, an empty text, no rows.
    """
    rows = [_row(path, line, values, columns) for line, values in read_records(path)]
    if not rows:
        raise UnusableData(f"{path}: the file has no rows")
    return rows


def _row(path: Path, line: int, values: Mapping[str, object], columns: tuple[str, ...]) -> Row:
    text_a = value_in(values, TEXT_A_COLUMNS)
    label = _label(values, columns)
    if text_a is None or label is None:
        wanted = " or ".join(columns if label is None else TEXT_A_COLUMNS)
        found = ", ".join(key for key in values if key)
        raise UnusableData(f"{path} line {line}: no column {wanted}; found {found}")
    if not text_a or not (label or columns == LABELS_COLUMNS):
        raise UnusableData(f"{path} line {line}: the {'text' if label else 'label'} is empty")
    return Row(line, text_a, value_in(values, TEXT_B_COLUMNS) or None, label)


def _label(values: Mapping[str, object], columns: tuple[str, ...]) -> str | list[str] | None:
    for column in columns:
        if isinstance(found := values.get(column), list):
            return [str(part) for part in found]
    return value_in(values, columns)


def value_in(values: Mapping[str, object], columns: tuple[str, ...]) -> str | None:
    """Return the value of the first of these columns that a record has."""
    for column in columns:
        if values.get(column) is not None:
            return str(values[column]).strip()
    return None
