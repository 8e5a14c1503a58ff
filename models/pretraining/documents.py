"""Texts for pretraining: documents, each a list of sentences in order."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TypeAlias

from models.data.columns import KNOWN, Columns
from models.data.records import is_plain
from models.data.tagged_sentences import has_words
from models.data.unlabelled import plain_lines, read_unlabelled
from models.errors import UnusableData

Document: TypeAlias = list[str]


def read_documents(paths: Sequence[Path], columns: Columns = KNOWN) -> list[Document]:
    """Read files of texts.

    In a `.txt` with blank lines, each block of lines is a document with a sentence per line. In any
    other file each text is a document of its own.

    Args:
        paths: `.txt`, or any format of labelled data, whose labels are not read.
        columns: those that the user names.

    Raises:
        UnusableData: an unreadable file, columns that are not known, or a file without texts.
    """
    return [document for path in paths for document in _read(path, columns)]


def are_ordered(documents: Iterable[Document]) -> bool:
    """Return whether there are documents of several sentences, whose order can be told."""
    return any(len(document) > 1 for document in documents)


def _read(path: Path, columns: Columns) -> list[Document]:
    if has_words(path, columns) or not is_plain(path) or columns != KNOWN:
        texts = read_unlabelled(path, columns)
        return [[part] for text in texts for part in text if part]
    blocks = list(_blocks(plain_lines(path)))
    if not blocks:
        raise UnusableData(f"{path}: the file has no texts")
    return blocks if len(blocks) > 1 else [[line] for line in blocks[0]]


def _blocks(lines: Iterable[str]) -> Iterator[Document]:
    """Yield the lines between blank lines."""
    for filled, block in groupby(lines, bool):
        if filled:
            yield list(block)
