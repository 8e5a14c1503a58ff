"""Labels as data files write them, turned into ids, sets of ids, numbers or tagged words."""

import re
from collections.abc import Callable, Iterable
from pathlib import Path

from models.data.examples import Example, Word
from models.data.label_ids import as_number, folded, label_ids, listed_names, meaning, whole
from models.data.rows import Row
from models.data.tagged_sentences import TaggedSentence
from models.errors import UnusableData
from serve.rules.traits import listed

# Between the labels of one row in formats without lists.
SEPARATOR = "|"
OUTSIDE = "O"


def label_names(path: Path, rows: Iterable[Row]) -> list[str]:
    """Return label names by id: from `labels.json` beside the file, else the distinct values."""
    return listed_names(path) or _in_order(
        path, ((row.line, _known(path, row.line, _single(path, row))) for row in rows)
    )


def set_names(path: Path, rows: Iterable[Row]) -> list[str]:
    """Return label names by id, as `label_names` does, for rows with any number of labels.

    Raises:
        UnusableData: a label looks like several.
    """
    if names := listed_names(path):
        return names
    found = ((row.line, _part(path, row.line, part)) for row in rows for part in _parts(row))
    return _in_order(path, found)


def tag_names(path: Path, sentences: Iterable[TaggedSentence]) -> list[str]:
    """Return tags by id; O comes first, then B-person and I-person next to each other."""
    if names := listed_names(path):
        return names
    tags = (
        each for sentence in sentences for each in zip(sentence.lines, sentence.tags, strict=True)
    )
    found = _in_order(path, ((line, _known(path, line, tag)) for line, tag in tags))
    return sorted(found, key=lambda tag: (tag != OUTSIDE, tag[2:] if "-" in tag else ""))


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


def _in_order(path: Path, found: Iterable[tuple[int, str]]) -> list[str]:
    """Return distinct labels: numbers by size, then names in alphabetic order.

    Args:
        path: for messages.
        found: line and label of each row.

    Raises:
        UnusableData: two labels mean the same.
    """
    lines = dict[str, int]()
    for line, label in found:
        lines.setdefault(label, line)
    seen = dict[str, str]()
    for label, line in lines.items():
        other = seen.setdefault(folded(label), label)
        if other != label:
            raise UnusableData(
                f"{path} line {line}: the label {label!a} and {other!a} of line {lines[other]} "
                "differ in case, blanks or the form of their characters only: write one of them "
                "everywhere, or, if they are two labels, name all labels in labels.json"
            )

    def sort_key(label: str) -> tuple[bool, float, str]:
        number = as_number(label)
        return number is None, number or 0.0, label

    return sorted(lines, key=sort_key)


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


def _known(path: Path, line: int, label: str) -> str:
    """Return a label that no list of names knows, unless it is known to mean none."""
    if by := meaning(label):
        raise UnusableData(
            f"{path} line {line}: the label {label}{by}; leave such rows out, or, if it is a "
            "label, name all of them in labels.json"
        )
    return whole(label)


def _part(path: Path, line: int, label: str) -> str:
    """Return one of several labels, unless it looks like several itself."""
    if re.search(r"[,;]|^\[", label):
        raise UnusableData(
            f"{path} line {line}: {label!r} looks like several labels: put {SEPARATOR} between "
            "them, or a list into a .jsonl; if it is one, name all labels in labels.json"
        )
    return _known(path, line, label)
