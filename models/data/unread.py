"""The columns of a data file that are not read: all are named, and some are a reason to stop."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from models.data.notes import note
from models.errors import UnusableData
from serve.rules.traits import listed

# How exports of annotation tools say what became of a row.
_ACCEPTED: Final = {"accept", "accepted", "submitted", "confirmed", "approved"}
_REFUSED: Final = {
    *("reject", "rejected", "ignore", "ignored", "skip", "skipped", "discard", "discarded"),
    *("draft", "pending", "cancelled", "canceled", "flagged", "unconfirmed", "unapproved"),
}
_NOTHING: Final = {"", "none", "nan"}
# Columns that say of each row whether it was accepted, and what they hold if it was not.
_YES, _NO = {"true", "1"}, {"false", "0"}
_FLAGS: Final = {
    "was_cancelled": _YES,
    **dict.fromkeys(("is_confirmed", "confirmed", "is_approved", "approved"), _NO),
}
_MARKS: Final = {"0", "1", "0.0", "1.0", "true", "false"}
# Of a column with more distinct values no more are kept.
_MOST_VALUES = 16


class Unread:
    """The unread columns of a file, and their first distinct values."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._values: dict[str, set[str]] = {}
        self._labels: dict[str, set[str]] = {}
        self._num_records = 0

    def see(self, values: Mapping[str, object], names: Iterable[str], label: str | None) -> None:
        """Look at a record: its unread columns, and its label's."""
        self._num_records += 1
        for name in names:
            _keep(self._values.setdefault(name, set()), values[name])
        if label is not None:
            _keep(self._labels.setdefault(label, set()), values[label])

    def tell(self, labelled: bool) -> None:
        """Name the columns.

        Args:
            labelled: whether the file's labels are read.

        Raises:
            UnusableData: the labels are read, and a column says that some rows were not accepted.
        """
        refused = [name for name, values in self._values.items() if _refuses(name, values)]
        if labelled and refused:
            raise UnusableData(
                f"{self._path}: the column {refused[0]} holds "
                f"{listed(sorted(self._values[refused[0]] - _NOTHING))}, as annotation tools write "
                "it: a row that was not accepted is no example of its label. Keep the accepted "
                f"rows and drop the column; if it is the label itself: --label-column {refused[0]}"
            )
        if self._values:
            note(f"{self._path}: these columns are not read: {listed(self._values)}")
        marks = [name for name, values in (self._labels | self._values).items() if values <= _MARKS]
        # A column of two numbers may count two rows.
        counts = self._num_records <= 2
        if labelled and marks[1:] and not counts and not self._labels.keys().isdisjoint(marks):
            note(f"{self._path}: {listed(marks)} hold 0 or 1. {joined(self._path, marks)}")


def columns_of_marks(values: Mapping[str, object]) -> list[str]:
    """Return the columns of a record that hold 0 or 1."""
    return [name for name, value in values.items() if str(value).strip().lower() in _MARKS]


# The records of annotation tools that nest texts or labels: two of their keys, the tool, and what
# makes a text with its label of the rows.
_NESTED: Final = {
    ("fields", "responses"): (
        "Argilla",
        "r['fields'] | {'label': a['value']}",
        "for a in next(iter(r['responses'].values()), [])[:1]",
    ),
    ("accept", "options"): (
        "Prodigy",
        "{'text': r['text'], 'label': r['accept']}",
        "if r['answer'] == 'accept'",
    ),
    ("annotations", "data"): (
        "Label Studio",
        "r['data'] | {'label': v['value']['choices']}",
        "for a in r['annotations'][:1] if not a.get('was_cancelled') "
        "for v in a['result'] if 'choices' in v['value']",
    ),
}


def unnested(path: Path, names: Iterable[str]) -> str:
    """Return how the records of an annotation tool become texts with labels; empty for others."""
    for keys, (tool, made, of_rows) in _NESTED.items():
        if {*keys} <= {*names}:
            return (
                f"This is what {tool} exports; write a text with its label per line: "
                f'python -c "import json; [print(json.dumps({made})) '
                f"for r in map(json.loads, open('{path}', encoding='utf-8-sig')) {of_rows}]\" "
                f"> {path.with_suffix('')}-labels.jsonl"
            )
    return ""


def joined(path: Path, marks: list[str]) -> str:
    """Return how columns of 0 and 1 become one column of labels."""
    rows = f"open('{path}', encoding='utf-8-sig')"
    separator = {".csv": ",", ".tsv": "\\t", ".txt": "\\t"}.get(path.suffix.lower())
    rows = (
        f"csv.DictReader({rows}, delimiter='{separator}')"
        if separator
        else f"map(json.loads, {rows})"
    )
    return (
        "To teach one model several labels, write the names of each row's into one column: "
        f'python -c "import csv, json; c = {marks}; '
        "[print(json.dumps({k: v for k, v in r.items() if k not in c} | {'labels': "
        "[n for n in c if str(r[n]).lower() in ('1', '1.0', 'true')]})) "
        f'for r in {rows}]" > {path.with_suffix("")}-labels.jsonl'
    )


def _keep(values: set[str], value: object) -> None:
    if len(values) < _MOST_VALUES:
        values.add(str(value).strip().lower())


def _refuses(name: str, values: set[str]) -> bool:
    if (of_refused := _FLAGS.get(name.strip().lower())) and values <= _YES | _NO | _NOTHING:
        return not values.isdisjoint(of_refused)
    return not values.isdisjoint(_REFUSED) and values <= _ACCEPTED | _REFUSED | _NOTHING
