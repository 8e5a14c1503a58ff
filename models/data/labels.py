"""Labels as data files write them, turned into ids, sets of ids, numbers or tagged words."""

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from models.data.examples import Example, Word
from models.data.rows import Row
from models.data.tagged_sentences import TaggedSentence
from models.errors import UnusableData
from serve.rules.traits import listed

# Between the labels of one row in formats without lists.
SEPARATOR = "|"
LABELS_FILE = "labels.json"
OUTSIDE = "O"
# What data files write for want of a label, and who does.
NO_LABELS = {
    "-1": "as in GLUE's test files of the datasets library",
    "-100": "as in tags of the datasets library",
    "-": "as in SNLI",
    "nan": "as pandas writes a missing value",
    "NaN": "as pandas writes a missing value",
}


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
    return listed_names(path) or _in_order(
        _known(path, row.line, _single(path, row)) for row in rows
    )


def set_names(path: Path, rows: Iterable[Row]) -> list[str]:
    """Return label names by id, as `label_names` does, for rows with any number of labels.

    Raises:
        UnusableData: a label looks like several.
    """
    if names := listed_names(path):
        return names
    return _in_order(_part(path, row.line, part) for row in rows for part in _parts(row))


def tag_names(path: Path, sentences: Iterable[TaggedSentence]) -> list[str]:
    """Return tags by id; O comes first, then B-person and I-person next to each other."""
    found = {
        _known(path, line, tag)
        for sentence in sentences
        for line, tag in zip(sentence.lines, sentence.tags, strict=True)
    }
    return listed_names(path) or sorted(found, key=lambda tag: (tag != OUTSIDE, tag[2:], tag))


def to_id(path: Path, labels: list[str]) -> Callable[[Row], int]:
    """Return a function from a row to its label's id; errors as in `label_ids`."""
    id_of = label_ids(path, labels)
    return lambda row: id_of(row.line, _single(path, row))


def to_marks(path: Path, labels: list[str]) -> Callable[[Row], tuple[float, ...]]:
    """Return a function from a row to 1.0 or 0.0 for every label; errors as in `label_ids`."""
    id_of = label_ids(path, labels)

    def marks(row: Row) -> tuple[float, ...]:
        chosen = [id_of(row.line, part) for part in _parts(row)]
        if len(set(chosen)) < len(chosen):
            raise UnusableData(
                f"{path} line {row.line}: {row.label} names a label twice; a row lists the labels "
                "that it has, by name or id, and not a 0 or 1 for each label"
            )
        return tuple(float(i in chosen) for i in range(len(labels)))

    return marks


def to_value(path: Path, row: Row) -> float:
    """Return a row's label as a number.

    Raises:
        UnusableData: the label is not a finite number.
    """
    label = _single(path, row)
    value = as_number(label)
    if value is None:
        raise UnusableData(
            f"{path} line {row.line}: {label!r} is no number; a regression needs one, such as 2.5"
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

    The names in `labels.json` beside the file are the file's. Where they are the given ones in
    another order, a name or id of the file becomes the id of the same name; other names, as many,
    are taken by their place.

    Raises:
        UnusableData: fewer than two labels, two of the same name, or another number than in
            `labels.json`. The returned function raises it for an unknown label.
    """
    if len(labels) < 2:
        raise UnusableData(f"{path}: at least two labels are needed, found {listed(labels)}")
    repeated = sorted({name for name in labels if labels.count(name) > 1})
    if repeated:
        raise UnusableData(f"{path}: labels must differ, but {listed(repeated)} is there twice")
    names = listed_names(path) or labels
    if len(names) != len(labels):
        raise UnusableData(
            f"{path}: labels.json beside it has {len(names)} labels ({listed(names)}), the model "
            f"has {len(labels)} ({listed(labels)}); use data with the model's own labels"
        )
    places = [
        labels.index(name) if set(names) == set(labels) else i for i, name in enumerate(names)
    ]
    ids = dict(zip(names, places, strict=True))
    if not any(name.isdecimal() for name in names):
        ids |= {str(i): place for i, place in enumerate(places)}

    def id_of(line: int, label: str) -> int:
        found = ids.get(label, ids.get(_whole(label)))
        if found is None:
            raise UnusableData(
                f"{path} line {line}: unknown label {label!r}{_meaning(label)}; "
                f"the labels are {listed(ids)}"
            )
        return found

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


def listed_names(path: Path) -> list[str]:
    """Return the names in `labels.json` beside a data file; empty if there is none."""
    return [str(label) for label in labels_file(path).get("labels", [])]


def _parts(row: Row) -> list[str]:
    parts = row.label if isinstance(row.label, list) else row.label.split(SEPARATOR)
    return [part.strip() for part in parts if part.strip()]


def _single(path: Path, row: Row) -> str:
    if isinstance(row.label, str):
        return row.label
    if len(row.label) > 1:
        raise UnusableData(
            f"{path} line {row.line}: the labels {listed(row.label)} are more than one: this is "
            "data for --task multi_label"
        )
    return row.label[0]


def _whole(label: str) -> str:
    """Return `1` for `1.0`: pandas writes ids so in columns with missing values."""
    return re.sub(r"^(-?\d+)\.0+$", r"\1", label)


def _known(path: Path, line: int, label: str) -> str:
    """Return a label that no list of names knows, unless it is known to mean none."""
    if meaning := _meaning(label):
        raise UnusableData(
            f"{path} line {line}: the label {label}{meaning}; leave such rows out, or, if it is a "
            "label, name all of them in labels.json"
        )
    return _whole(label)


def _part(path: Path, line: int, label: str) -> str:
    """Return one of several labels, unless it looks like several itself."""
    if re.search(r"[,;]|^\[", label):
        raise UnusableData(
            f"{path} line {line}: {label!r} looks like several labels: put {SEPARATOR} between "
            "them, or a list into a .jsonl; if it is one, name all labels in labels.json"
        )
    return _known(path, line, label)


def _meaning(label: str) -> str:
    meaning = NO_LABELS.get(_whole(label))
    return f", which marks a row without a label, {meaning}" if meaning else ""
