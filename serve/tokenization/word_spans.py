"""The tokens of a text as parts of words."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

# Names of the unknown token, for tokenizers whose model does not name theirs.
_UNKNOWN = ("<unk>", "[UNK]")


class WordSpans(NamedTuple):
    """The tokens of one input as parts of words.

    Attributes:
        pieces: (tokens,) the tokens as they are written; unknown ones as the text has them.
        spans: (tokens, 2) first character of each in the text, and the one after its last; None
            where the input is token ids.
        continues: (tokens,) whether each continues the word of the token before it.
    """

    pieces: list[str]
    spans: NDArray[np.int64] | None
    continues: NDArray[np.bool_]


class WordSpanFinder:
    """Finds word spans as transformers' token classification pipeline does."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        model = tokenizer.model
        self._marks_subwords = bool(getattr(model, "continuing_subword_prefix", None))
        names = (getattr(model, "unk_token", None), *_UNKNOWN)
        ids = [tokenizer.token_to_id(name) for name in names if name]
        self._unknown_id = next((token for token in ids if token is not None), -1)

    def of_text(self, text: str, encoding: Encoding) -> WordSpans:
        """Return the word spans of a tokenized text.

        Where a prefix marks tokens within words (WordPiece), a token continues a word if it is
        not written as in the text. Elsewhere it does if there is no space before it or at its
        start, so punctuation continues the word before it. An unknown token never does.
        """
        pieces, spans = encoding.tokens, encoding.offsets
        continues = np.array(
            [len(piece) != end - start for piece, (start, end) in zip(pieces, spans, strict=True)]
            if self._marks_subwords
            else [start > 0 and " " not in text[start - 1 : start + 1] for start, _ in spans],
            np.bool_,
        )
        for place in np.flatnonzero(np.array(encoding.ids) == self._unknown_id).tolist():
            start, end = spans[place]
            pieces[place], continues[place] = text[start:end], False
        return WordSpans(pieces, np.array(spans, np.int64).reshape(-1, 2), continues)

    def of_ids(self, ids: Sequence[int]) -> WordSpans:
        """Return the word spans of token ids: every token counts as a word."""
        pieces = [self._tokenizer.id_to_token(token) or "" for token in ids]
        return WordSpans(pieces, None, np.zeros(len(pieces), np.bool_))

    def join(self, pieces: Sequence[str]) -> str:
        """Return the text that pieces make together."""
        decoder = self._tokenizer.decoder
        joined: str = decoder.decode(pieces) if decoder is not None else " ".join(pieces)
        return joined


class NoWords(WordSpanFinder):
    """For entities whose letters do not matter, of texts that are not known."""

    def __init__(self) -> None:
        pass

    def join(self, pieces: Sequence[str]) -> str:
        return ""
