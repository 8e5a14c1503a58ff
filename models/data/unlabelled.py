"""Texts without labels: a text file with one per line, or a data file whose labels are ignored."""

from collections.abc import Iterator
from pathlib import Path

from models.data.examples import TEXT_A_COLUMNS, TEXT_B_COLUMNS, value_in
from models.data.records import read_records
from models.data.tagged_sentences import CONLL, TOKEN_COLUMNS, has_tag_header, read_sentences
from models.errors import UnusableData
from serve.tokenization.length_bounds import Text

PLAIN = ".txt"


def read_unlabelled(path: Path) -> list[Text]:
    """Read texts, or pairs of texts.

    Args:
        path: `.txt`, or any format of labelled data.

    Raises:
        UnusableData: an unreadable file, a missing column, or no texts.
    """
    texts = list(_read(path))
    if not texts:
        raise UnusableData(f"{path}: the file has no texts")
    return texts


def _read(path: Path) -> Iterator[Text]:
    if not path.is_file():
        raise UnusableData(f"{path}: no such file")
    if path.suffix.lower() == PLAIN:
        yield from _lines(path)
    elif path.suffix.lower() in CONLL or has_tag_header(path):
        yield from (Text(" ".join(sentence.words)) for sentence in read_sentences(path))
    else:
        yield from _records(path)


def _lines(path: Path) -> Iterator[Text]:
    try:
        content = path.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnusableData(f"{path}: not UTF-8 text: {error}") from None
    # Split at line feeds only: other line separators may be part of a text.
    yield from (Text(line.strip()) for line in content.split("\n") if line.strip())


def _records(path: Path) -> Iterator[Text]:
    for line, values in read_records(path):
        words = [values[column] for column in TOKEN_COLUMNS if values.get(column)]
        text = value_in(values, TEXT_A_COLUMNS)
        if words and isinstance(words[0], list):
            text = " ".join(map(str, words[0]))
        if not text:
            found = ", ".join(key for key in values if key)
            raise UnusableData(
                f"{path} line {line}: no text in a column {' or '.join(TEXT_A_COLUMNS)}; found "
                f"{found}"
            )
        yield Text(text, value_in(values, TEXT_B_COLUMNS) or None)
