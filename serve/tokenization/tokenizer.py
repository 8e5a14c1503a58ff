"""Text to token ids, with the `tokenizers` library alone."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

from serve.errors import InvalidBundle, InvalidRequest, TextTooLong
from serve.tokenization.word_spans import Spelling


class Text(NamedTuple):
    """One input: a text, or a pair of texts."""

    text: str
    text_pair: str | None = None


class Tokens(NamedTuple):
    """One tokenized input, special tokens included.

    Attributes:
        input_ids: (tokens,).
        token_type_ids: (tokens,).
        counted: (tokens,) of token classification: which are not special.
        spelling: of token classification: how they are written.
    """

    input_ids: NDArray[np.int64]
    token_type_ids: NDArray[np.int64]
    counted: NDArray[np.bool_] | None = None
    spelling: Spelling | None = None

    @classmethod
    def of(cls, encoding: Encoding) -> "Tokens":
        """Return what most tasks need of an encoding."""
        return cls(np.array(encoding.ids, np.int64), np.array(encoding.type_ids, np.int64))


class TextEncoder:
    """Tokenizes without padding; a text that is too long is refused or cut, as asked.

    The `tokenizers` settings for truncation are state, so each way has an instance of its own
    and calls may come from several threads.

    Attributes:
        max_tokens: longest input, special tokens included.
        tokenizer: the one that cuts nothing.
    """

    def __init__(self, path: Path, max_tokens: int) -> None:
        """Load a `tokenizer.json`.

        Args:
            path: the file.
            max_tokens: longest input, special tokens included.

        Raises:
            InvalidBundle: the file cannot be read.
        """
        self.max_tokens = max_tokens
        self.tokenizer = _load(path)
        self._cutting = _load(path)
        self._cutting.enable_truncation(max_tokens)

    def encode(self, texts: Sequence[Text], truncate: bool = False) -> list[Tokens]:
        """Tokenize inputs.

        Args:
            texts: the inputs.
            truncate: cut what is too long (of a pair, the longer text first).

        Raises:
            TextTooLong: an input has more than `max_tokens` tokens; names its place.
            InvalidRequest: an input cannot be tokenized, or nothing is left of it.
        """
        encodings = self.encodings(dict(enumerate(texts)), truncate)
        return [Tokens.of(encoding) for encoding in encodings.values()]

    def encodings(self, texts: Mapping[int, Text], truncate: bool = False) -> dict[int, Encoding]:
        """Return the library's encodings of inputs, by their places in the request.

        Args and errors are those of `encode`.
        """
        tokenizer = self._cutting if truncate else self.tokenizer
        pairs = [text.text if text.text_pair is None else tuple(text) for text in texts.values()]
        try:
            encodings = dict(zip(texts, tokenizer.encode_batch(pairs), strict=True))
        except Exception as error:
            raise InvalidRequest(f"inputs: the tokenizer refuses this text: {error}") from None
        for place, encoding in encodings.items():
            self._check_length(place, encoding)
        return encodings

    def _check_length(self, place: int, encoding: Encoding) -> None:
        if not len(encoding):
            raise InvalidRequest(f"inputs[{place}] has no tokens; send a text with at least one")
        if len(encoding) > self.max_tokens:
            raise TextTooLong(
                f"inputs[{place}] has {len(encoding)} tokens, the model takes {self.max_tokens}; "
                'shorten it or send "truncate": true'
            )


def _load(path: Path) -> Tokenizer:
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises no narrower type
        raise InvalidBundle(f"{path} is no tokenizer: {error}") from None
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer
