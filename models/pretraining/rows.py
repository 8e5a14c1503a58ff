"""Texts to rows: documents, their chunks, and two parts where the order of parts is to be told."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TypeAlias

import numpy as np
from tokenizers import Tokenizer

from models.data.alignment import IGNORED
from models.data.columns import KNOWN, Columns
from models.data.examples import Example
from models.data.records import is_plain
from models.data.tagged_sentences import has_words
from models.data.unlabelled import plain_lines, read_unlabelled
from models.errors import UnusableData

# Sentences in order.
Document: TypeAlias = list[str]
# Consecutive sentences of a document that fill a row.
Chunk: TypeAlias = tuple[str, ...]

HELD_OUT_SHARE = 0.05
# Measuring takes as long as training on about half as many rows.
MOST_HELD_OUT = 1000
# Documents are tokenized so many at a time.
_AT_A_TIME = 1000


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
    filled = groupby(plain_lines(path), bool)
    blocks = [list(lines) for is_filled, lines in filled if is_filled]
    if not blocks:
        raise UnusableData(f"{path}: the file has no texts")
    return blocks if len(blocks) > 1 else [[line] for line in blocks[0]]


def split_rows(
    documents: Sequence[Document],
    tokenizer: Tokenizer,
    max_tokens: int,
    seed: int,
) -> tuple[list[Example], list[Example]]:
    """Return the documents as rows to train on, and rows to measure on.

    Where documents have several sentences, a row of several is a pair of texts. Its label is 0, or
    1 if the texts have changed places, which half of them do (ALBERT's sentence order; Lan et al.
    2020). All other rows are single texts without a label.

    Of the rows, 5 % and at most 1,000 are held out. Their texts' hash chooses them, so that equal
    texts are on one side and every seed measures on the same ones.

    Args:
        documents: a document longer than a row gives several rows.
        tokenizer: of the encoder, without truncation.
        max_tokens: longest row, special tokens included.
        seed: of the places where pairs are cut, and of which of them change places.

    Raises:
        UnusableData: there are fewer than two different rows.
    """
    ordered = are_ordered(documents)
    room = max_tokens - tokenizer.num_special_tokens_to_add(is_pair=ordered)
    chunks = list(_chunks(documents, tokenizer, room))
    by_hash = sorted(
        dict.fromkeys(chunks), key=lambda c: hashlib.sha256("\n".join(c).encode()).digest()
    )
    if len(by_hash) < 2:
        raise UnusableData(
            f"the texts give {len(by_hash)} different row(s): expected two at least, one to train "
            "on and one to measure on"
        )
    count = min(max(1, round(HELD_OUT_SHARE * len(by_hash))), MOST_HELD_OUT, len(by_hash) - 1)
    measured, rng = set(by_hash[:count]), np.random.default_rng(seed)
    train = [_example(chunk, ordered, rng) for chunk in chunks if chunk not in measured]
    # From another generator: every seed measures on the same pairs.
    rng = np.random.default_rng(0)
    return train, [_example(chunk, ordered, rng) for chunk in by_hash[:count]]


def _example(chunk: Chunk, ordered: bool, rng: np.random.Generator) -> Example:
    if not ordered or len(chunk) == 1:
        return Example(" ".join(chunk), None, IGNORED)
    cut = int(rng.integers(1, len(chunk)))
    first, second = " ".join(chunk[:cut]), " ".join(chunk[cut:])
    return Example(second, first, 1) if rng.integers(2) else Example(first, second, 0)


def _chunks(documents: Sequence[Document], tokenizer: Tokenizer, room: int) -> Iterator[Chunk]:
    """Yield the documents' sentences, as many together as have at most `room` tokens."""
    for start in range(0, len(documents), _AT_A_TIME):
        some = documents[start : start + _AT_A_TIME]
        lengths = iter(_lengths(tokenizer, [text for document in some for text in document]))
        for document in some:
            sentences = [(text, next(lengths)) for text in document]
            yield from _packed(_fitting(tokenizer, sentences, room), room)


def _packed(sentences: Iterable[tuple[str, int]], room: int) -> Iterator[Chunk]:
    chunk: list[str] = []
    used = 0
    for text, length in sentences:
        if chunk and used + length > room:
            yield tuple(chunk)
            chunk, used = [], 0
        chunk.append(text)
        used += length
    if chunk:
        yield tuple(chunk)


def _fitting(
    tokenizer: Tokenizer, sentences: Iterable[tuple[str, int]], room: int
) -> Iterator[tuple[str, int]]:
    """Yield sentences with their tokens; one of too many is cut into halves until they fit."""
    for text, length in sentences:
        if length > room and len(text) > 1:
            halves = _halves(text)
            yield from _fitting(
                tokenizer, zip(halves, _lengths(tokenizer, halves), strict=True), room
            )
        elif length:
            yield text, length


def _halves(text: str) -> list[str]:
    words = text.split()
    if len(words) == 1:
        return [text[: len(text) // 2], text[len(text) // 2 :]]
    return [" ".join(words[: len(words) // 2]), " ".join(words[len(words) // 2 :])]


def _lengths(tokenizer: Tokenizer, texts: Sequence[str]) -> list[int]:
    encodings = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    return [len(encoding) for encoding in encodings]
