"""Tagged sentences: CoNLL files (token, tab, tag; a blank line ends a sentence) or JSON lines."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from models.data.examples import TEXT_A_COLUMNS
from models.data.records import read_records
from models.errors import UnusableData

CONLL = (".conll", ".bio", ".iob", ".iob2")
TOKEN_COLUMNS = ("tokens", "words")
TAG_COLUMNS = ("tags", "ner_tags")
_DOCUMENT_START = "-DOCSTART-"


class TaggedSentence(NamedTuple):
    """One sentence.

    Attributes:
        lines: line number of each word in the file.
        words: the words.
        tags: one per word, as in the file: names or ids.
    """

    lines: tuple[int, ...]
    words: tuple[str, ...]
    tags: tuple[str, ...]


def read_sentences(path: Path) -> list[TaggedSentence]:
    """Read tagged sentences; the suffix decides the format.

    `.jsonl` and `.json` hold one object with `tokens` and `tags` per line. All other files have
    one token per line. Columns are separated by tabs, or by spaces if there is no tab, and the
    last one is the tag. A first line `token`, `tag` is a header.

    Raises:
        UnusableData: an unreadable file, a malformed line, or no sentences.
    """
    if path.suffix.lower() in (".jsonl", ".json"):
        sentences = [_read_json(path, line, values) for line, values in read_records(path)]
    else:
        sentences = list(_read_lines(path))
    if not sentences:
        raise UnusableData(f"{path}: the file has no sentences")
    return sentences


def has_tag_header(path: Path) -> bool:
    """Return whether a file's first line is the header of a file of tagged tokens."""
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        return _is_header(file.readline().split())


def _read_lines(path: Path) -> Iterator[TaggedSentence]:
    if not path.is_file():
        raise UnusableData(f"{path}: no such file")
    try:
        text = path.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnusableData(f"{path}: not UTF-8 text: {error}") from None
    sentence: list[tuple[int, str, str]] = []
    # Split at line feeds only: other line separators may be part of a token.
    for line, raw in enumerate([*text.split("\n"), ""], start=1):
        columns = _columns(raw)
        if line == 1:
            _refuse_table(path, columns)
        if (line == 1 and _is_header(columns)) or columns[:1] == [_DOCUMENT_START]:
            continue
        if columns:
            sentence.append((line, *_word(path, line, columns)))
        elif sentence:
            lines, words, tags = zip(*sentence, strict=True)
            yield TaggedSentence(lines, words, tags)
            sentence = []


def _columns(line: str) -> list[str]:
    if not line.strip():
        return []
    return [part.strip() for part in (line.split("\t") if "\t" in line else line.split())]


def _is_header(columns: list[str]) -> bool:
    return [column.lower() for column in columns] in (["token", "tag"], ["word", "tag"])


def _refuse_table(path: Path, columns: list[str]) -> None:
    if {"label", "labels"} & set(columns) and set(TEXT_A_COLUMNS) & set(columns):
        raise UnusableData(
            f"{path} line 1: a table of texts; token classification needs one token, a tab and "
            "its tag per line, and a blank line after each sentence"
        )


def _word(path: Path, line: int, columns: list[str]) -> tuple[str, str]:
    if len(columns) < 2 or not columns[0] or not columns[-1]:
        raise UnusableData(
            f"{path} line {line}: expected a token, a tab and its tag, found "
            f"{' '.join(columns)!r}; a blank line ends a sentence"
        )
    return columns[0], columns[-1]


def _read_json(path: Path, line: int, values: Mapping[str, object]) -> TaggedSentence:
    words = _listed(path, line, values, TOKEN_COLUMNS)
    tags = _listed(path, line, values, TAG_COLUMNS)
    if len(words) != len(tags):
        raise UnusableData(
            f"{path} line {line}: {len(words)} tokens have {len(tags)} tags; each needs one"
        )
    for index, word in enumerate(words):
        if not word.strip():
            raise UnusableData(f"{path} line {line}: token {index} is empty")
    return TaggedSentence((line,) * len(words), words, tags)


def _listed(
    path: Path, line: int, values: Mapping[str, object], columns: tuple[str, ...]
) -> tuple[str, ...]:
    for column in columns:
        found = values.get(column)
        if isinstance(found, list) and found:
            return tuple(map(str, found))
    raise UnusableData(
        f"{path} line {line}: expected a list of {columns[0]}, as in "
        '{"tokens": ["Rome", "sleeps"], "tags": ["B-location", "O"]}; '
        f"found {', '.join(values)}"
    )
