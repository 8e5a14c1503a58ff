"""Texts without labels: a text file with one per line, or a data file whose labels are ignored."""

from collections.abc import Iterator
from pathlib import Path

from models.data.columns import KNOWN, Columns
from models.data.lines import read_lines
from models.data.records import is_plain
from models.data.rows import read_rows
from models.data.tagged_sentences import is_tagged, read_words
from models.errors import UnusableData
from serve.tokenization.length_bounds import Text


def read_unlabelled(path: Path, columns: Columns = KNOWN) -> list[Text]:
    """Read texts, or pairs of texts.

    Args:
        path: a text per line in `.txt`, or any format of labelled data.
        columns: those that the user names.

    Raises:
        UnusableData: an unreadable file, columns that are not known, or no texts.
    """
    texts = list(_read(path, columns))
    if not texts:
        raise UnusableData(f"{path}: the file has no texts")
    return texts


def _read(path: Path, columns: Columns) -> Iterator[Text]:
    if is_tagged(path, needs_tags=False):
        yield from (Text(" ".join(words)) for words in read_words(path, columns))
    elif is_plain(path) and columns == KNOWN:
        yield from (Text(line.strip()) for _, line in read_lines(path) if line.strip())
    else:
        yield from (Text(row.text_a, row.text_b) for row in read_rows(path, None, columns))
