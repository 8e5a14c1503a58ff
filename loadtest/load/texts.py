"""What a load test asks about: the lines of a file, or sentences of its own making.

A file is plain text, one text per line; or, with a header row and tabs in it, a table. Of a table
the text is the column `--column` names, or `text`, `sentence` or `text_a`; `text_b` is the second
text of a pair, `label` (a name, or a number into the model's labels) the right answer.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from loadtest.http.client import Json
from loadtest.load.sentences import make_sentences

_TEXT_COLUMNS = ("text", "sentence", "text_a")
_PAIR_COLUMNS = ("text_pair", "text_b")
_NUM_MADE_UP = 2000


class Example(NamedTuple):
    """A text as requests carry it, and the right answer where it is known."""

    inputs: str | Json
    label: str | None = None

    def right(self, label: str, labels: Sequence[str]) -> bool:
        """Tell whether this label is the right one.

        Args:
            label: what the server said.
            labels: the model's, in order; labels that are numbers point into it.
        """
        wanted = self.label
        if wanted is not None and wanted.isdecimal() and int(wanted) < len(labels):
            wanted = labels[int(wanted)]
        return wanted == label


class NoTexts(Exception):
    """The file holds nothing that could be sent; the message says why."""


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
