"""Texts without labels: a text file with one per line, or a data file whose labels are ignored."""

import re
from collections.abc import Iterator
from pathlib import Path

from models.data.columns import KNOWN, KNOWN_NAMES, Columns, fold
from models.data.examples import Example, Word
from models.data.lines import read_lines
from models.data.records import is_plain
from models.data.rows import each_row
from models.data.tagged_sentences import has_words, read_words
from models.errors import UnusableData
from serve.rules.traits import Task
from serve.tokenization.tokenizer import Text

# How JSON begins, and a table whose columns have names of one word.
_JSON = re.compile(r'\[?\s*\{\s*("|$)|\[$')
_HEADER = re.compile(r'"?[\w#-]+"?([,;|]"?[\w#-]+"?)+')
_FASTTEXT = re.compile(r"(^|\s)__label__\S")


def read_unlabelled(path: Path, columns: Columns = KNOWN) -> list[Text]:
    """Read texts, or pairs of texts.

    Args:
        path: a text per line in `.txt`, or any format of labelled data.
        columns: those that the user names.

    Raises:
        UnusableData: an unreadable file, columns that are not known, or no texts.
    """
    return list(each_text(path, columns))


def each_text(path: Path, columns: Columns = KNOWN) -> Iterator[Text]:
    """Yield what `read_unlabelled` returns; some of its errors come after the last text."""
    text = None
    for text in _read(path, columns):
        yield text
    if text is None:
        raise UnusableData(f"{path}: the file has no texts")


def without_label(text: Text, task: Task) -> Example:
    """Return a text as an example whose label says nothing; a tagger's says where words begin."""
    words = re.finditer(r"\S+", text.text) if task == "token" else None
    label = 0 if words is None else [Word(*word.span(), tag=0) for word in words]
    return Example(text.text, text.text_pair, label)


def _read(path: Path, columns: Columns) -> Iterator[Text]:
    if has_words(path, columns):
        yield from (Text(" ".join(words)) for words in read_words(path, columns))
    elif is_plain(path) and not columns.texts:
        yield from (Text(line) for line in plain_lines(path) if line)
    else:
        yield from (Text(row.text_a, row.text_b) for row in each_row(path, None, columns))


def plain_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a `.txt` without the blanks at their ends; a blank line is empty.

    Raises:
        UnusableData: an unreadable file, or a line that is one of a table or of JSON.
    """
    is_first = True
    for number, line in read_lines(path):
        text = line.strip()
        if "\t" in text or (is_first and _is_other_form(text)):
            raise UnusableData(
                f"{path} line {number}: {text[:40]!r} is no text alone: name a table .csv or .tsv, "
                "with a header, and JSON .jsonl; in a .txt each line is one text and holds no tab"
            )
        is_first = is_first and not text
        yield text


def _is_other_form(first: str) -> bool:
    """Return whether a first line is JSON's, fastText's, or the names of a table's columns."""
    if _JSON.match(first) or _FASTTEXT.search(first):
        return True
    known = {fold(cell.strip('" ')) for cell in re.split("[,;|]", first)} & KNOWN_NAMES
    return len(known) > 1 or (len(known) == 1 and _HEADER.fullmatch(first) is not None)
