"""Tagged words in lines: a word per line with its columns, and a blank line after each sentence."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from models.data.columns import LABELS, SETS, TEXT_NAMES, VALUES, fold
from models.data.lines import read_lines
from models.errors import UnusableData

_DOCUMENT_START = "-DOCSTART-"
# Tags of entities, by which a file without a telling suffix is known.
_ENTITY_TAG = re.compile(r"O|[BIESLU]-\S+")
_NUMBER = re.compile(r"\d+([-.]\d+)?")
# Such lines stand before sentences of CoNLL-U, Universal NER and MultiCoNER: `# sent_id = 1`.
_COMMENT = re.compile(r"# .*=")
_WORD_NAMES = frozenset(["token", "tokens", "word", "words", "form"])
_TAG_NAMES = frozenset(
    [
        *("tag", "tags", "ner", "ner_tag", "ner_tags", "entity", "label", "labels"),
        *("pos", "pos_tag", "pos_tags", "upos", "xpos", "chunk", "chunk_tags"),
    ]
)


class TaggedWord(NamedTuple):
    """A word, its tag, and their line."""

    line: int
    word: str
    tag: str


def read_conll(path: Path) -> list[list[TaggedWord]]:
    """Read sentences: the first column is the word, the last one its tag.

    Columns are separated by tabs, or by blanks if the first word's line has no tab. Headers,
    `-DOCSTART-` and comments are skipped.

    Raises:
        UnusableData: an unreadable file, a malformed line, or a first column that holds no words.
    """
    sentences = list(_sentences(path))
    words = [each for sentence in sentences for each in sentence]
    if words and all(_NUMBER.fullmatch(each.word) for each in words):
        raise UnusableData(
            f"{path}: the first column holds numbers, and not words; of files whose columns are "
            f"number, word, tag, this leaves word and tag: grep -v '^#' {path} | cut -f2,3"
        )
    swapped = all(_ENTITY_TAG.fullmatch(each.word) for each in words)
    if swapped and not all(_ENTITY_TAG.fullmatch(each.tag) for each in words):
        raise UnusableData(
            f"{path}: the first column holds the tags, and not the words; this writes words "
            f"first: awk -v OFS='\\t' '{{print $2, $1}}' {path}"
        )
    return sentences


def has_entity_tags(path: Path) -> bool:
    """Return whether a header of words and tags, or a tag at the end of every line, shows."""
    width = num_words = 0
    for _, line in read_lines(path):
        row = _split(line, "\t" in line)
        if not num_words and _is_header(row) and fold(row[-1]) in ("tag", "tags"):
            return True
        if row and not _is_mark(row):
            # Texts that end like a tag by chance differ in their numbers of words.
            width = width or len(row)
            if len(row) != width or width < 2 or not _ENTITY_TAG.fullmatch(row[-1]):
                return False
            num_words += 1
    return num_words > 1


def _sentences(path: Path) -> Iterator[list[TaggedWord]]:
    sentence: list[TaggedWord] = []
    width, has_tabs = 0, False
    for line, text in read_lines(path):
        has_tabs = has_tabs if width else "\t" in text
        columns = _split(text, has_tabs)
        if columns and not _is_mark(columns):
            if not width:
                _check_header(path, line, columns)
                width = len(columns)
            sentence.append(_word(path, line, columns, width))
        elif sentence:
            yield sentence
            sentence = []
    if sentence:
        yield sentence


def _split(line: str, at_tabs: bool) -> list[str]:
    """Return a line's columns; none of a blank line or a comment."""
    if not line.strip() or _COMMENT.match(line):
        return []
    return [part.strip() for part in line.split("\t")] if at_tabs else line.split()


def _is_mark(columns: Sequence[str]) -> bool:
    """Return whether a line holds no word: the start of a document, or a header."""
    return columns[0].split()[:1] == [_DOCUMENT_START] or _is_header(columns)


def _is_header(columns: Sequence[str]) -> bool:
    return len(columns) > 1 and fold(columns[0]) in _WORD_NAMES and fold(columns[-1]) in _TAG_NAMES


def _check_header(path: Path, line: int, columns: Sequence[str]) -> None:
    """Refuse a first line that names columns in another order, or those of texts."""
    names = set(map(fold, columns))
    if names & _WORD_NAMES and names & _TAG_NAMES:
        raise UnusableData(
            f"{path} line {line}: the columns are {' '.join(columns)}; the word must be the first "
            "of them, and its tag the last, as cut and awk can write them"
        )
    if names & {*LABELS, *SETS, *VALUES} and names & TEXT_NAMES:
        raise UnusableData(
            f"{path} line {line}: a table of texts; token classification needs one token, a tab "
            "and its tag per line, and a blank line after each sentence"
        )


def _word(path: Path, line: int, columns: Sequence[str], width: int) -> TaggedWord:
    if len(columns) < 2 or not columns[0] or not columns[-1]:
        raise UnusableData(
            f"{path} line {line}: expected a token, a tab and its tag, found "
            f"{' '.join(columns)!r}; a blank line ends a sentence"
        )
    if len(columns) != width:
        raise UnusableData(
            f"{path} line {line}: {len(columns)} columns, but {width} in the first line, of which "
            f"the last is the tag; found {' '.join(columns)!r}"
        )
    return TaggedWord(line, columns[0], columns[-1])
