"""The texts of a load test: the lines of a file, or made-up sentences.

A file has one text per line (`.txt`), or is any that the training reads, with or without labels. A
label is the right answer: a name, or a number into the model's labels.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from loadtest.http.client import Json
from loadtest.simulator.traffic import sst2_lengths
from models.data.label_ids import LABELS_FILE, listed_names, match_names, name_ids, whole
from models.data.options import named_columns
from models.data.records import is_plain
from models.data.rows import Row, read_rows
from models.data.tagged_sentences import has_words
from models.data.unlabelled import read_unlabelled
from models.errors import UnusableData
from serve.errors import OfframpError

_NUM_MADE_UP = 2000
# Tokens of the longest sentence in SST-2 dev, [CLS] and [SEP] included.
_LONGEST = 55
_SPECIAL_TOKENS = 2
_SUBJECTS = ["the film", "the plot", "its cast", "the second half", "this director", "the music"]
_SUBJECTS += ["every scene", "the ending"]
_VERBS = ["is", "feels", "remains", "turns out", "looks", "seems"]
_DEGREES = ["rather", "almost", "surprisingly", "never", "utterly", "quite", "hardly"]
_PRAISE = ["warm", "funny", "gripping", "tender", "clever", "moving", "fresh", "splendid"]
_BLAME = ["dull", "hollow", "clumsy", "tedious", "shallow", "stale", "messy", "pointless"]
_JOINS = (", and", ", but", ", while", ", because", "; still ,")


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


def make_sentences(num: int, seed: int) -> tuple[str, ...]:
    """Return sentences with as many tokens as those of SST-2; always the same for a seed."""
    draw = random.Random(seed)
    lengths = sst2_lengths(num, seed, _LONGEST)
    return tuple(_sentence(draw, int(length) - _SPECIAL_TOKENS) for length in lengths)


def _sentence(draw: random.Random, num_words: int) -> str:
    return " ".join(islice(chain.from_iterable(_clauses(draw)), num_words))


def _clauses(draw: random.Random) -> Iterator[list[str]]:
    while True:
        opinion = draw.choice(draw.choice((_PRAISE, _BLAME)))
        parts = (_SUBJECTS, _VERBS, _DEGREES)
        yield " ".join([*(draw.choice(part) for part in parts), opinion]).split()
        yield draw.choice(_JOINS).split()
