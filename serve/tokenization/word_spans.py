"""How a text's tokens are written, and which of them go on with a word."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

# The unknown token's name where the tokenizer's model does not tell it.
_UNKNOWN = ("<unk>", "[UNK]")


class Spelling(NamedTuple):
    """One input's tokens as they are written.

    Attributes:
        pieces: (tokens,) the tokens; unknown ones as the text has them.
        spans: (tokens, 2) where each begins and ends in the text, in characters; None where there
            is no text but token ids.
        continues: (tokens,) whether each goes on with the word of the token before it.
    """

    pieces: list[str]
    spans: NDArray[np.int64] | None
    continues: NDArray[np.bool_]


class Speller:
    """Writes tokens as transformers' token classification pipeline does."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        model = tokenizer.model
        self._marks_subwords = bool(getattr(model, "continuing_subword_prefix", None))
        names = (getattr(model, "unk_token", None), *_UNKNOWN)
        ids = [tokenizer.token_to_id(name) for name in names if name]
        self._unknown = next((found for found in ids if found is not None), -1)

    def of_text(self, text: str, encoding: Encoding) -> Spelling:
        """Return the spelling of a tokenized text.

        Where a prefix marks tokens within words (WordPiece), a token goes on with a word if it is
        not written as in the text. Elsewhere it does if no space stands before it or begins it;
        so punctuation goes on with the word before it. An unknown token never goes on.
        """
        pieces, spans = encoding.tokens, encoding.offsets
        continues = np.array(
            [len(piece) != end - start for piece, (start, end) in zip(pieces, spans, strict=True)]
            if self._marks_subwords
            else [start > 0 and " " not in text[start - 1 : start + 1] for start, _ in spans],
            np.bool_,
        )
        for place in np.flatnonzero(np.array(encoding.ids) == self._unknown).tolist():
            start, end = spans[place]
            pieces[place], continues[place] = text[start:end], False
        return Spelling(pieces, np.array(spans, np.int64).reshape(-1, 2), continues)

    def of_ids(self, ids: Sequence[int]) -> Spelling:
        """Return the spelling of token ids; where words begin cannot be told."""
        pieces = [self._tokenizer.id_to_token(token) or "" for token in ids]
        return Spelling(pieces, None, np.zeros(len(pieces), np.bool_))

    def join(self, pieces: Sequence[str]) -> str:
        """Return the text that pieces make together."""
        decoder = self._tokenizer.decoder
        joined: str = decoder.decode(pieces) if decoder is not None else " ".join(pieces)
        return joined
