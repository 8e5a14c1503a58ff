"""Labels as data files write them, turned into ids, sets of ids, numbers or tagged words."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from models.data.examples import Example, Row, Word
from models.data.tagged_sentences import TaggedSentence
from models.errors import UnusableData

# Between the labels of one row in formats without lists.
SEPARATOR = "|"
LABELS_FILE = "labels.json"
OUTSIDE = "O"


def labels_file(path: Path) -> dict[str, Any]:
    """Return the content of `labels.json` beside a data file; empty if there is none.

    Raises:
        UnusableData: the file is not a JSON object with a list of labels.
    """
    beside = path.parent / LABELS_FILE
    if not beside.is_file():
        return {}
    try:
        content = json.loads(beside.read_text("utf-8"))
    except ValueError:
        content = None
    if not isinstance(content, dict) or not isinstance(content.get("labels"), list):
        raise UnusableData(f'{beside}: expected {{"labels": ["...", ...]}}')
    return content


def label_names(path: Path, rows: Iterable[Row]) -> list[str]:
    """Return label names by id: from `labels.json` beside the file, else the distinct values."""
    return _listed(path) or _in_order(_single(row) for row in rows)


def set_names(path: Path, rows: Iterable[Row]) -> list[str]:
    """Return label names by id, as `label_names` does, for rows with any number of labels."""
    return _listed(path) or _in_order(part for row in rows for part in _parts(row))


def tag_names(path: Path, sentences: Iterable[TaggedSentence]) -> list[str]:
    """Return tags by id; O comes first, then B-person and I-person next to each other."""
    found = {tag for sentence in sentences for tag in sentence.tags}
    return _listed(path) or sorted(found, key=lambda tag: (tag != OUTSIDE, tag[2:], tag))


def to_id(path: Path, labels: list[str]) -> Callable[[Row], int]:
    """Return a function from a row to its label's id; errors as in `label_ids`."""
    id_of = label_ids(path, labels)
    return lambda row: id_of(row.line, _single(row))


def to_marks(path: Path, labels: list[str]) -> Callable[[Row], tuple[float, ...]]:
    """Return a function from a row to 1.0 or 0.0 for every label; errors as in `label_ids`."""
    id_of = label_ids(path, labels)

    def marks(row: Row) -> tuple[float, ...]:
        chosen = {id_of(row.line, part) for part in _parts(row)}
        return tuple(float(i in chosen) for i in range(len(labels)))

    return marks


def to_value(path: Path, row: Row) -> float:
    """Return a row's label as a number.

    Raises:
        UnusableData: the label is not a finite number.
    """
    value = as_number(_single(row))
    if value is None:
        raise UnusableData(
            f"{path} line {row.line}: {_single(row)!r} is no number; a regression needs one, "
            "such as 2.5"
        )
    return value


def to_words(path: Path, sentences: Iterable[TaggedSentence], labels: list[str]) -> list[Example]:
    """Join words with spaces, and turn tags into ids; errors as in `label_ids`."""
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
    """Return a function from a line and a label's name or id to the label's id.

    Raises:
        UnusableData: fewer than two labels, or two of the same name. The returned function raises
            it for an unknown label.
    """
    if len(labels) < 2:
        raise UnusableData(f"{path}: at least two labels are needed, found {', '.join(labels)}")
    repeated = sorted({name for name in labels if labels.count(name) > 1})
    if repeated:
        raise UnusableData(f"{path}: labels must differ, but {', '.join(repeated)} is there twice")
    # A name takes precedence over an id: labels may be called 1 and 2.
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
    """Return the text as a finite number, or None."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if abs(value) < float("inf") else None


def _in_order(labels: Iterable[str]) -> list[str]:
    """Return distinct labels: whole numbers in numeric order, then names in alphabetic order."""

    def sort_key(label: str) -> tuple[bool, int, str]:
        is_number = label.isdecimal()
        return not is_number, int(label) if is_number else 0, label

    return sorted(set(labels), key=sort_key)


def _listed(path: Path) -> list[str]:
    return [str(label) for label in labels_file(path).get("labels", [])]


def _parts(row: Row) -> list[str]:
    parts = row.label if isinstance(row.label, list) else row.label.split(SEPARATOR)
    return [part.strip() for part in parts if part.strip()]


def _single(row: Row) -> str:
    return SEPARATOR.join(row.label) if isinstance(row.label, list) else row.label
