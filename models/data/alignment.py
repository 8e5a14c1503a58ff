"""Alignment of words with tokens: the first token of each word carries the word's tag."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from tokenizers import Encoding, Tokenizer

from models.data.examples import Word

# In place of a tag id for tokens without one; the default `ignore_index` of torch's losses.
IGNORED = -100


def tag_tokens(
    path: Path, texts: Iterable[tuple[str, list[Word]]], max_tokens: int
) -> list[list[int]]:
    """Return the tag ids of each text's tokens; words beyond `max_tokens` tokens are left out.

    `IGNORED` is the tag of special tokens and of all but a word's first token.

    Args:
        path: a `tokenizer.json`.
        texts: texts, each with its words in order.
        max_tokens: longest input in tokens, special tokens included.
    """
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_tokens)
    pairs = list(texts)
    encodings = tokenizer.encode_batch([text for text, _ in pairs])
    return [_token_tags(e, words) for e, (_, words) in zip(encodings, pairs, strict=True)]


def _token_tags(encoding: Encoding, words: Sequence[Word]) -> list[int]:
    tags = [IGNORED] * len(encoding)
    current = 0
    for token, (start, end) in enumerate(encoding.offsets):
        # A token may begin with the space before its word. Special tokens have no width.
        while current < len(words) and words[current].end <= start:
            current += 1
        if current < len(words) and words[current].start < end > start:
            tags[token] = words[current].tag
            current += 1
    return tags
