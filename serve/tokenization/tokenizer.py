"""Turns texts into token ids with the `tokenizers` library."""

import json
from collections.abc import Collection, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

from serve.errors import STOPS, InvalidBundle, InvalidRequest, TextTooLong
from serve.tokenization.growth import growth_problem
from serve.tokenization.plain_text import plain
from serve.tokenization.word_spans import WordSpans

# The library takes time and memory for every token of a text, also for those that are cut off
# afterwards. So a text with more characters than this for each token that the model takes is
# refused, or cut, before it is tokenized. Words have five characters on average.
CHARS_PER_TOKEN = 64


class Text(NamedTuple):
    """One input: a text, or a pair of texts."""

    text: str
    text_pair: str | None = None


class Tokens(NamedTuple):
    """One tokenized input, special tokens included.

    Attributes:
        input_ids: (tokens,).
        token_type_ids: (tokens,).
        counted: (tokens,) which tokens are not special; for token classification only.
        word_spans: the tokens as parts of words; for token classification only.
    """

    input_ids: NDArray[np.int64]
    token_type_ids: NDArray[np.int64]
    counted: NDArray[np.bool_] | None = None
    word_spans: WordSpans | None = None

    @classmethod
    def of(cls, encoding: Encoding) -> "Tokens":
        """Return the ids and types of an encoding."""
        return cls(np.array(encoding.ids, np.int64), np.array(encoding.type_ids, np.int64))


class TextEncoder:
    """Tokenizes without padding; texts that are too long are refused or truncated.

    A tokenizer of the library holds its truncation as state. There is one for either case, so
    that calls may come from several threads.

    Attributes:
        max_tokens: longest input, special tokens included.
        tokenizer: the one that does not truncate.
    """

    def __init__(self, path: Path, max_tokens: int, offsets: bool = True) -> None:
        """Load a `tokenizer.json`.

        To tell by `offsets` where tokens stand in their texts takes `encodings` a fifth longer.

        Raises:
            InvalidBundle: the file cannot be read.
        """
        self.max_tokens = max_tokens
        self.tokenizer = _load(path)
        self._truncating = _load(path)
        self._truncating.enable_truncation(max_tokens)
        self._max_chars = CHARS_PER_TOKEN * max_tokens
        self._offsets = offsets

    def plain(self, special: Collection[str]) -> "TextEncoder":
        """Return an encoder that reads these tokens as characters. It has the same model."""
        encoder = copy(self)
        encoder.tokenizer = plain(self.tokenizer, special)
        encoder._truncating = plain(self.tokenizer, special)
        encoder._truncating.enable_truncation(self.max_tokens)
        return encoder

    def encode(self, texts: Sequence[Text], truncate: bool = False) -> list[Tokens]:
        """Tokenize inputs; `truncate` cuts those that are too long (of a pair, the longer text).

        Raises:
            TextTooLong: an input has more than `max_tokens` tokens; the message names its place.
            InvalidRequest: an input cannot be tokenized, or has no tokens.
        """
        encodings = self.encodings(dict(enumerate(texts)), truncate)
        return [Tokens.of(encoding) for encoding in encodings.values()]

    def encodings(self, texts: Mapping[int, Text], truncate: bool = False) -> dict[int, Encoding]:
        """Return the library's encodings of inputs, by their places in the request.

        Truncation and errors are those of `encode`.
        """
        if truncate:
            texts = {place: self._cut(text) for place, text in texts.items()}
            return _encode(self._truncating, texts, self._offsets)
        for place, text in texts.items():
            num_chars = sum(len(part) for part in text if part)
            if num_chars > self._max_chars:
                raise _too_long(place, num_chars, "characters", self._max_chars)
        encodings = _encode(self.tokenizer, texts, self._offsets)
        for place, encoding in encodings.items():
            if len(encoding) > self.max_tokens:
                num_tokens = sum(map(len, encodings.values()))
                raise _too_long(place, len(encoding), "tokens", self.max_tokens, num_tokens)
        return encodings

    def whole(self, texts: Mapping[int, Text]) -> dict[int, Encoding]:
        """Return encodings of texts, however long; the caller has bounded them.

        Raises:
            InvalidRequest: a text cannot be tokenized, or has no tokens.
        """
        return _encode(self.tokenizer, texts)

    def _cut(self, text: Text) -> Text:
        pair = text.text_pair
        return Text(text.text[: self._max_chars], None if pair is None else pair[: self._max_chars])


def _too_long(place: int, found: int, unit: str, most: int, num_tokens: int = 0) -> TextTooLong:
    return TextTooLong(
        f"inputs[{place}] has {found} {unit}, the model takes {most}; shorten it or send "
        '"truncate": true',
        num_tokens,
    )


def encode_batch(
    tokenizer: Tokenizer, inputs: Sequence[Any], special_tokens: bool = True, offsets: bool = True
) -> list[Encoding]:
    """Return the library's encodings of texts and pairs of texts.

    Raises:
        InvalidRequest: an input cannot be tokenized.
    """
    try:
        encode = tokenizer.encode_batch if offsets else tokenizer.encode_batch_fast
        return encode(inputs, add_special_tokens=special_tokens)
    except Exception as error:
        raise InvalidRequest(f"inputs: the tokenizer refuses this text: {error}") from None


def _encode(
    tokenizer: Tokenizer, texts: Mapping[int, Text], offsets: bool = True
) -> dict[int, Encoding]:
    pairs = [text.text if text.text_pair is None else tuple(text) for text in texts.values()]
    encodings = dict(zip(texts, encode_batch(tokenizer, pairs, offsets=offsets), strict=True))
    for place, encoding in encodings.items():
        if not len(encoding):
            raise InvalidRequest(f"inputs[{place}] has no tokens; send a text with at least one")
    return encodings


def _load(path: Path) -> Tokenizer:
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except STOPS:
        raise
    except BaseException as error:  # the library raises no narrower type, and may panic
        raise InvalidBundle(f"{path} is no tokenizer: {error}") from None
    normalizer = tokenizer.normalizer
    if normalizer and (problem := growth_problem(json.loads(normalizer.__getstate__()))):
        raise InvalidBundle(f"{path} is refused: {problem}")
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer
