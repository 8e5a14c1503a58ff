"""Labelled examples: which columns mean what, and labels as ids."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from models.errors import UnusableData
from models.records import read_records

TEXT_A_COLUMNS = ("text_a", "text", "sentence", "sentence1")
TEXT_B_COLUMNS = ("text_b", "sentence2")


class Example(NamedTuple):
    """One text, or a pair of texts, with its label's id."""

    text_a: str
    text_b: str | None
    label: int


class Row(NamedTuple):
    """An example whose label is still as the file writes it."""

    line: int
    text_a: str
    text_b: str | None
    label: str


def read_rows(path: Path) -> list[Row]:
    """Read the columns `label`, a text, and optionally a second text.

    Raises:
        UnusableData: an unreadable file, a missing column, an empty text, no rows.
    """
    rows = [_row(path, line, values) for line, values in read_records(path)]
    if not rows:
        raise UnusableData(f"{path}: the file has no rows")
    return rows


def label_names(path: Path, rows: list[Row]) -> list[str]:
    """Return label names by id: from `labels.json` beside the file, else the distinct values."""
    listed = path.parent / "labels.json"
    if not listed.is_file():
        distinct = {row.label for row in rows}
        return sorted(distinct, key=lambda label: (not label.isdigit(), label.zfill(9)))
    try:
        return [str(label) for label in json.loads(listed.read_text("utf-8"))["labels"]]
    except (ValueError, KeyError, TypeError):
        raise UnusableData(f'{listed}: expected {{"labels": ["...", ...]}}') from None


def to_examples(path: Path, rows: list[Row], labels: list[str]) -> list[Example]:
    """Turn labels, given as names or as ids, into ids.

    Raises:
        UnusableData: fewer than two labels, or a row with an unknown one.
    """
    if len(labels) < 2:
        raise UnusableData(f"{path}: at least two labels are needed, found {', '.join(labels)}")
    # A name wins over an id: labels may be called 1 and 2.
    ids = {str(i): i for i in range(len(labels))} | {name: i for i, name in enumerate(labels)}
    for row in rows:
        if row.label not in ids:
            raise UnusableData(
                f"{path} line {row.line}: unknown label {row.label!r}; "
                f"the labels are {', '.join(labels)}, or 0 to {len(labels) - 1}"
            )
    return [Example(row.text_a, row.text_b, ids[row.label]) for row in rows]


def _row(path: Path, line: int, values: Mapping[str, object]) -> Row:
    text_a = _value(values, TEXT_A_COLUMNS)
    label = _value(values, ("label",))
    if text_a is None or label is None:
        wanted = "label" if label is None else " or ".join(TEXT_A_COLUMNS)
        found = ", ".join(key for key in values if key)
        raise UnusableData(f"{path} line {line}: no column {wanted}; found {found}")
    if not text_a or not label:
        raise UnusableData(f"{path} line {line}: the {'text' if label else 'label'} is empty")
    return Row(line, text_a, _value(values, TEXT_B_COLUMNS) or None, label)


def _value(values: Mapping[str, object], columns: tuple[str, ...]) -> str | None:
    for column in columns:
        if values.get(column) is not None:
            return str(values[column]).strip()
    return None
