"""Names of labels and their ids: `labels.json` beside a data file, and the labels of a model."""

import json
import re
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from models.data.examples import TASKS
from models.data.notes import note
from models.errors import UnusableData
from serve.bounded_file import read_file
from serve.rules.traits import listed

LABELS_FILE, _MOST_BYTES = "labels.json", 4 << 20
# Dashes and quotes as editors and spreadsheets write them, and what keyboards write.
_TYPED = str.maketrans(
    "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\u2018\u2019\u201c\u201d", "-------''\"\""
)
# What data files write for want of a label, and who does.
NO_LABELS = {
    "-1": "as in GLUE's test files of the datasets library",
    "-100": "as in tags of the datasets library",
    "-": "as in SNLI",
    "nan": "as pandas writes a missing value",
    "NaN": "as pandas writes a missing value",
    "<NA>": "as pandas writes a missing value",
    "None": "as Python writes a missing value",
    "NA": "as R writes a missing value",
    "N/A": "as spreadsheets write a missing value",
    "n/a": "as spreadsheets write a missing value",
    "#N/A": "as spreadsheets write a missing value",
    "null": "as in JSON and SQL",
    "NULL": "as in JSON and SQL",
}


def labels_file(path: Path) -> dict[str, Any]:
    """Return the content of `labels.json` beside a data file; empty if there is none.

    Raises:
        UnusableData: the file is not a JSON object with a list of labels, or its task is none.
    """
    beside = path.parent / LABELS_FILE
    if not beside.is_file():
        return {}
    try:
        content = json.loads(read_file(beside, _MOST_BYTES).decode("utf-8-sig"))
    except ValueError:
        content = None
    names = content.get("labels") if isinstance(content, dict) else None
    if not isinstance(names, list) or not all(
        isinstance(name, str | int | float) for name in names
    ):
        raise UnusableData(f'{beside}: expected {{"labels": ["...", ...]}}')
    content["labels"] = labels = [str(name).strip() for name in names]
    if repeated := sorted({name for name in labels if labels.count(name) > 1}):
        raise UnusableData(f"{beside}: labels must differ, but {listed(repeated)} is there twice")
    if (task := content.get("task", TASKS[0])) not in TASKS:
        raise UnusableData(f"{beside}: the task is {task!r}, and none of {listed(TASKS)}")
    return content


def listed_names(path: Path) -> list[str]:
    """Return the names in `labels.json` beside a data file; empty if there is none."""
    names: list[str] = labels_file(path).get("labels", [])
    return names


def label_ids(path: Path, labels: list[str]) -> Callable[[int, str], int]:
    """Return a function from a line and a label's name or id to the label's id.

    The names in `labels.json` beside the file are the file's. Where they are the given ones in
    another order or case, a name or id of the file becomes the id of the same name; other names, as
    many, are taken by their place, and a note says so.

    Raises:
        UnusableData: fewer than two labels, an empty name, two of the same name, another number
            than in `labels.json`, or some of its names at another place. The returned function
            raises it for an unknown label.
    """
    if len(labels) < 2:
        raise UnusableData(f"{path}: at least two labels are needed, found {listed(labels)}")
    if not all(map(str.strip, labels)):
        raise UnusableData(f"{path}: a label's name is empty: {listed(map(repr, labels))}")
    repeated = sorted({name for name in labels if labels.count(name) > 1})
    if repeated:
        raise UnusableData(f"{path}: labels must differ, but {listed(repeated)} is there twice")
    names = listed_names(path) or labels
    places, said = match_names(path, names, labels)
    if said:
        note(f"{path}: {said}")
    ids = name_ids(names, places)

    def id_of(line: int, label: str) -> int:
        found = ids.get(whole(label))
        if found is None:
            alike = next((name for name in ids if folded(name) == folded(label)), None)
            form = f"; it differs from {alike!a} in case, blanks or the form of characters only"
            raise UnusableData(
                f"{path} line {line}: unknown label {label!r}{meaning(label)}; "
                f"the labels are {listed(ids)}{form if alike else ''}"
            )
        return found

    return id_of


def name_ids(names: Sequence[str], places: Sequence[int]) -> dict[str, int]:
    """Return the place of each name, and of each id unless a name is a number."""
    ids = dict(zip(map(whole, names), places, strict=True))
    if all(as_number(name) is None for name in names):
        ids |= {str(i): place for i, place in enumerate(places)}
    return ids


def label_order(theirs: Sequence[str], labels: Sequence[str]) -> list[int] | None:
    """Return another classifier's id of each label, by name; None if it has other labels.

    Names that say nothing, LABEL_0 or the ids themselves, are taken by the id that they hold.
    """
    for own, others in (
        (list(labels), list(theirs)),
        ([*map(folded, labels)], [*map(folded, theirs)]),
    ):
        if sorted(own) == sorted(others) and len(set(own)) == len(own):
            return [others.index(name) for name in own]
    if len(theirs) != len(labels):
        return None
    if numbers := _numbers(theirs):
        return [numbers.index(place) for place in range(len(labels))]
    return _numbers(labels) or (list(range(len(labels))) if are_ids(labels) else None)


def _numbers(names: Sequence[str]) -> list[int]:
    """Return the places of names such as LABEL_0 by their numbers; empty for other names."""
    found = [re.fullmatch(r"LABEL_(\d+)", name) for name in names]
    numbers = [int(each[1]) for each in found if each]
    return [sorted(numbers).index(n) for n in numbers] if len({*numbers}) == len(names) else []


def are_ids(labels: Sequence[str]) -> bool:
    """Tell whether labels are named by nothing but their ids."""
    return list(labels) == [str(i) for i in range(len(labels))]


def match_names(path: Path, names: Sequence[str], labels: Sequence[str]) -> tuple[list[int], str]:
    """Return the place of each of a file's names among the labels, and what is worth saying.

    Raises:
        UnusableData: another number of names, or some of them at another place.
    """
    if len(names) != len(labels):
        raise UnusableData(
            f"{path}: labels.json beside it has {len(names)} labels ({listed(names)}), the model "
            f"has {len(labels)} ({listed(labels)}); use data with the model's own labels"
        )
    own, model = list(names), list(labels)
    if set(own) != set(model):
        own, model = [*map(folded, own)], [*map(folded, model)]
    if set(own) == set(model) and len(set(model)) == len(model):
        return [model.index(name) for name in own], ""
    moved = [name for name in own if name in model and own.index(name) != model.index(name)]
    if any(as_number(name) is None for name in moved):
        raise UnusableData(
            f"{path}: labels.json beside it has {listed(names)}, the model has {listed(labels)}: "
            f"{listed(moved)} would change places; give both the same names, or the same order"
        )
    pairs = listed(f"{theirs} is {ours}" for theirs, ours in zip(names, labels, strict=True))
    return list(range(len(labels))), f"Labels were taken by their place: {pairs}."


def as_number(text: str) -> float | None:
    """Return the text as a finite number, or None."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if abs(value) < float("inf") and "_" not in text else None


def folded(label: str) -> str:
    """Return what stays of a label without case, blanks and forms of the same characters.

    `Not spam`, `not_spam` and `not  spam` mean the same, and so do an accent as a character of its
    own and one inside its letter, and the dashes and quotes of editors and of keyboards.
    """
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", label).casefold())
    text = text.translate(_TYPED)
    text = "".join(each for each in text if unicodedata.category(each) != "Cf").strip()
    number = as_number(text)
    if number is not None:
        return str(number)
    return " ".join(re.split(r"[\s_]+|(?<=\w)-(?=\w)", text)).strip(" '\"")


def whole(label: str) -> str:
    """Return `1` for `1.0`: pandas writes ids so in columns with missing values."""
    return re.sub(r"^(-?\d+)\.0+$", r"\1", label)


def meaning(label: str) -> str:
    """Return what a label that means none says, as a part of a sentence; empty for others."""
    by = NO_LABELS.get(whole(label))
    return f", which marks a row without a label, {by}" if by else ""
