"""Tags of words to tags of tokens: the first token of each word carries its tag."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from tokenizers import Encoding, Tokenizer

from models.data.examples import Word

# What a token has in place of a tag's id where there is nothing to learn; torch's default.
IGNORED = -100


class Tagging(NamedTuple):
    """What the tokens of one text are to be.

    Attributes:
        tags: (tokens,) tag ids; `IGNORED` for special tokens and all but a word's first.
        counted: (tokens,) whether the token is part of the text.
    """

    tags: list[int]
    counted: list[bool]


def tag_tokens(
    path: Path, texts: Iterable[tuple[str, list[Word]]], max_tokens: int
) -> list[Tagging]:
    """Align tagged words with tokens; words beyond `max_tokens` tokens are left out.

    Args:
        path: a `tokenizer.json`.
        texts: each with its words in order.
        max_tokens: special tokens included.
    """
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_tokens)
    pairs = list(texts)
    encodings = tokenizer.encode_batch([text for text, _ in pairs])
    return [_tagging(e, words) for e, (_, words) in zip(encodings, pairs, strict=True)]


def _tagging(encoding: Encoding, words: Sequence[Word]) -> Tagging:
    counted = [not special for special in encoding.special_tokens_mask]
    tags = [IGNORED] * len(counted)
    place = 0
    for token, (start, end) in enumerate(encoding.offsets):
        # A token may begin with the space before its word, and special ones have no width.
        while place < len(words) and words[place].end <= start:
            place += 1
        if place < len(words) and words[place].start < end > start:
            tags[token] = words[place].tag
            place += 1
    return Tagging(tags, counted)
