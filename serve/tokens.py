"""Text to token ids, with the `tokenizers` library alone."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

from serve.errors import InvalidBundle, InvalidRequest, TextTooLong


class Text(NamedTuple):
    """One input: a text, or a pair of texts."""

    text: str
    text_pair: str | None = None


class Tokens(NamedTuple):
    """One tokenized input, special tokens included."""

    input_ids: NDArray[np.int64]  # (tokens,)
    token_type_ids: NDArray[np.int64]  # (tokens,)


class TextEncoder:
    """Tokenizes without padding; a text that is too long is refused or cut, as asked.

    The `tokenizers` settings for truncation are state, so each way has an instance of its own
    and calls may come from several threads.
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
        self._whole = _load(path)
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
        tokenizer = self._cutting if truncate else self._whole
        pairs = [text.text if text.text_pair is None else tuple(text) for text in texts]
        try:
            encodings = tokenizer.encode_batch(pairs)
        except Exception as error:
            raise InvalidRequest(f"inputs: the tokenizer refuses this text: {error}") from None
        for place, encoding in enumerate(encodings):
            self._check_length(place, encoding)
        return [_tokens(encoding) for encoding in encodings]

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


def _tokens(encoding: Encoding) -> Tokens:
    return Tokens(np.array(encoding.ids, np.int64), np.array(encoding.type_ids, np.int64))
