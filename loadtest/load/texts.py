"""The texts of a load test: the lines of a file, or made-up sentences.

A file has one text per line (`.txt`), or is any that the training reads, with or without labels. A
label is the right answer: a name, or a number into the model's labels.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from loadtest.http.client import Json
from loadtest.load.sentences import make_sentences
from models.data.label_ids import LABELS_FILE, listed_names, match_names, name_ids, whole
from models.data.options import named_columns
from models.data.records import is_plain
from models.data.rows import Row, read_rows
from models.data.tagged_sentences import has_words
from models.data.unlabelled import read_unlabelled
from models.errors import UnusableData
from serve.errors import OfframpError

_NUM_MADE_UP = 2000


class Example(NamedTuple):
    """A text as requests carry it, and its right label if that is known."""

    inputs: str | Json
    label: str | None = None  # as in the file
    names: tuple[str, ...] = ()  # by id, of `labels.json` beside the file

    def right(self, label: str, labels: Sequence[str]) -> bool | None:
        """Tell whether the server's label is right; None if the example's is none of the model's.

        Args:
            label: the server's.
            labels: the model's, in order.
        """
        wanted = _ids(self.names, tuple(labels)).get(whole(self.label or ""))
        right = self.label if wanted is None else labels[wanted]
        return label == right if right in labels else None


@cache
def _ids(names: tuple[str, ...], labels: tuple[str, ...]) -> Mapping[str, int]:
    """Return the place of each name and id of a file among the model's labels."""
    names = names or labels
    with suppress(UnusableData):
        return name_ids(names, match_names(Path(LABELS_FILE), names, labels)[0])
    return {}


class NoTexts(OfframpError):
    """The file has no texts; the message says why."""


def made_up() -> tuple[Example, ...]:
    """Return sentences as long as those of SST-2; always the same."""
    return tuple(Example(text) for text in make_sentences(_NUM_MADE_UP, seed=1))


def load_texts(path: Path, column: str | None = None) -> tuple[Example, ...]:
    """Read a file of texts.

    Args:
        path: a text per line in `.txt`, or a data file.
        column: which column of a table holds the text; of a pair, two with a comma between.

    Raises:
        NoTexts: the file cannot be read, has no such column or no text in it.
    """
    columns = named_columns(column, None)
    try:
        if (is_plain(path) and not column) or has_words(path, columns):
            return tuple(Example(_inputs(*text)) for text in read_unlabelled(path, columns))
        rows = read_rows(path, None, columns)
        names = tuple(listed_names(path))
    except (OSError, UnusableData) as error:
        raise NoTexts(str(error)) from None
    return tuple(Example(_inputs(row.text_a, row.text_b), _label(row), names) for row in rows)


def _label(row: Row) -> str | None:
    return row.label or None if isinstance(row.label, str) else None


def _inputs(text: str, pair: str | None) -> str | Json:
    return {"text": text, "text_pair": pair} if pair else text
