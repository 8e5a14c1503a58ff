"""The texts of a load test: the lines of a file, or made-up sentences.

A file is plain text with one text per line, or a table: a header row and tabs. In a table the text
is in the column that `--column` names, or in `text`, `sentence` or `text_a`. `text_b` is the second
text of a pair. `label` is the right answer: a name, or a number into the model's labels.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from loadtest.http.client import Json
from loadtest.load.sentences import make_sentences
from serve.errors import OfframpError

_TEXT_COLUMNS = ("text", "sentence", "text_a")
_PAIR_COLUMNS = ("text_pair", "text_b")
_NUM_MADE_UP = 2000


class Example(NamedTuple):
    """A text as requests carry it, and its right label if that is known."""

    inputs: str | Json
    label: str | None = None

    def right(self, label: str, labels: Sequence[str]) -> bool:
        """Tell whether the server's label is right; `labels` are the model's, in order."""
        wanted = self.label
        if wanted is not None and wanted.isdecimal() and int(wanted) < len(labels):
            wanted = labels[int(wanted)]
        return wanted == label


class NoTexts(OfframpError):
    """The file has no texts; the message says why."""


def made_up() -> tuple[Example, ...]:
    """Return sentences as long as those of SST-2; always the same."""
    return tuple(Example(text) for text in make_sentences(_NUM_MADE_UP, seed=1))


def load_texts(path: Path, column: str | None = None) -> tuple[Example, ...]:
    """Read a file of texts.

    Args:
        path: plain text, or tab separated with a header row. UTF-8.
        column: which column of a table holds the text.

    Raises:
        NoTexts: the file cannot be read, has no such column or no text in it.
    """
    try:
        header, *rest = path.read_text(encoding="utf-8").split("\n")
    except (OSError, ValueError) as error:
        raise NoTexts(f"{path} cannot be read: {error}") from None
    if "\t" in header:
        found = _table(path, header.split("\t"), rest, column)
    elif column is not None:
        raise NoTexts(f"{path} has no columns: its first line has no tab in it")
    else:
        found = [Example(line.strip()) for line in (header, *rest) if line.strip()]
    if not found:
        raise NoTexts(f"{path} holds no text")
    return tuple(found)


def _table(path: Path, names: list[str], lines: list[str], column: str | None) -> list[Example]:
    names = [name.strip() for name in names]
    first = _place(names, (column,) if column else _TEXT_COLUMNS)
    if first is None:
        raise NoTexts(
            f"{path} has no column {column or ' or '.join(_TEXT_COLUMNS)}; "
            f"it has {', '.join(names)}"
        )
    second, label = _place(names, _PAIR_COLUMNS), _place(names, ("label",))
    rows = (line.split("\t") for line in lines)
    return [
        Example(_inputs(row[first], _cell(row, second)), _cell(row, label) or None)
        for row in rows
        if len(row) > first and row[first].strip()
    ]


def _place(names: list[str], wanted: Sequence[str]) -> int | None:
    return next((names.index(name) for name in wanted if name in names), None)


def _cell(row: list[str], place: int | None) -> str:
    return row[place].strip() if place is not None and place < len(row) else ""


def _inputs(text: str, pair: str) -> str | Json:
    return {"text": text.strip(), "text_pair": pair} if pair else text.strip()
