"""What is right of each example: labels as ids, as sets of ids, or as numbers."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from models.data.examples import Example, Row, Word
from models.data.sentences import Tagged
from models.errors import UnusableData

# Between the labels of one row, where the format has no lists.
SEPARATOR = "|"
LABELS_FILE = "labels.json"
OUTSIDE = "O"


def labels_file(path: Path) -> dict[str, Any]:
    """Return what `labels.json` beside a data file says; nothing if there is none.

    Raises:
        UnusableData: it is no JSON object.
    """
    beside = path.parent / LABELS_FILE
    if not beside.is_file():
        return {}
    try:
        said = json.loads(beside.read_text("utf-8"))
    except ValueError:
        said = None
    if not isinstance(said, dict) or not isinstance(said.get("labels"), list):
        raise UnusableData(f'{beside}: expected {{"labels": ["...", ...]}}')
    return said


def label_names(path: Path, rows: Iterable[Row]) -> list[str]:
    """Return label names by id: from `labels.json` beside the file, else the distinct values."""
    return _listed(path) or in_order(_one(row.label) for row in rows)


def set_names(path: Path, rows: Iterable[Row]) -> list[str]:
    """Return the names of the labels of which a row may have several, likewise."""
    return _listed(path) or in_order(part for row in rows for part in _parts(row.label))


def tag_names(path: Path, sentences: Iterable[Tagged]) -> list[str]:
    """Return tags by id, likewise; O first, then B-person and I-person side by side."""
    found = {tag for sentence in sentences for tag in sentence.tags}
    return _listed(path) or sorted(found, key=lambda tag: (tag != OUTSIDE, tag[2:], tag))


def in_order(labels: Iterable[str]) -> list[str]:
    """Return distinct labels: whole numbers by size, then names by the alphabet."""

    def place(label: str) -> tuple[bool, int, str]:
        number = label.isdecimal()
        return not number, int(label) if number else 0, label

    return sorted(set(labels), key=place)


def to_examples(path: Path, rows: Iterable[Row], labels: list[str]) -> list[Example]:
    """Turn labels, given as names or as ids, into ids.

    Raises:
        UnusableData: fewer than two labels, or a row with an unknown one.
    """
    id_of = label_ids(path, labels)
    return [Example(row.text_a, row.text_b, id_of(row.line, _one(row.label))) for row in rows]


def to_sets(path: Path, rows: Iterable[Row], labels: list[str]) -> list[Example]:
    """Turn each row's labels, names or ids, into 1.0 or 0.0 for every label.

    Raises:
        UnusableData: fewer than two labels, or a row with an unknown one.
    """
    id_of = label_ids(path, labels)
    examples = []
    for row in rows:
        chosen = {id_of(row.line, part) for part in _parts(row.label)}
        marks = tuple(float(i in chosen) for i in range(len(labels)))
        examples.append(Example(row.text_a, row.text_b, marks))
    return examples


def to_values(path: Path, rows: Iterable[Row]) -> list[Example]:
    """Turn labels into numbers.

    Raises:
        UnusableData: a row whose label is no finite number.
    """
    return [
        Example(row.text_a, row.text_b, _number(path, row.line, _one(row.label))) for row in rows
    ]


def to_words(path: Path, sentences: Iterable[Tagged], labels: list[str]) -> list[Example]:
    """Join each sentence's words with spaces, and turn tags, names or ids, into ids.

    Raises:
        UnusableData: fewer than two tags, or a sentence with an unknown one.
    """
    id_of = label_ids(path, labels)
    examples = []
    for sentence in sentences:
        words: list[Word] = []
        for line, text, tag in zip(*sentence, strict=True):
            start = words[-1].end + 1 if words else 0
            words.append(Word(start, start + len(text), id_of(line, tag)))
        examples.append(Example(" ".join(sentence.words), None, words))
    return examples


def label_ids(path: Path, labels: list[str]) -> Callable[[int, str], int]:
    """Return a function from a line and a label's name or id to its id.

    Raises:
        UnusableData: fewer than two labels, or two of one name; and by the function, an
            unknown label.
    """
    if len(labels) < 2:
        raise UnusableData(f"{path}: at least two labels are needed, found {', '.join(labels)}")
    twice = sorted({name for name in labels if labels.count(name) > 1})
    if twice:
        raise UnusableData(f"{path}: labels must differ, but {', '.join(twice)} is there twice")
    # A name wins over an id: labels may be called 1 and 2.
    ids = {str(i): i for i in range(len(labels))} | {name: i for i, name in enumerate(labels)}

    def id_of(line: int, label: str) -> int:
        if label not in ids:
            raise UnusableData(
                f"{path} line {line}: unknown label {label!r}; "
                f"the labels are {', '.join(labels)}, or 0 to {len(labels) - 1}"
            )
        return ids[label]

    return id_of


def as_number(text: str) -> float | None:
    """Return a finite number, or None for a text that is none."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if abs(value) < float("inf") else None


def _number(path: Path, line: int, label: str) -> float:
    value = as_number(label)
    if value is None:
        raise UnusableData(
            f"{path} line {line}: {label!r} is no number; a regression needs one, such as 2.5"
        )
    return value


def _listed(path: Path) -> list[str]:
    return [str(label) for label in labels_file(path).get("labels", [])]


def _parts(label: str | list[str]) -> list[str]:
    parts = label if isinstance(label, list) else label.split(SEPARATOR)
    return [part.strip() for part in parts if part.strip()]


def _one(label: str | list[str]) -> str:
    return SEPARATOR.join(label) if isinstance(label, list) else label
