"""Texts that are longer than a model takes, cut into windows that overlap."""

from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding

from serve.errors import InvalidRequest, TextTooLong
from serve.tokenization.length_bounds import CHARS_PER_TOKEN, PIECE_CHARS, WORD, max_words
from serve.tokenization.tokenizer import Tokens
from serve.tokenization.word_spans import WordSpans

# Of one text, which costs no more than so many texts then.
MAX_WINDOWS = 64

# A text is tokenized in one go, so its characters have a bound of their own: the text takes a
# thread as long as four pieces of a request. 64 windows of 512 tokens of English fit.
_MAX_CHARS = 4 * PIECE_CHARS


class Cut(NamedTuple):
    """A text in several windows.

    Attributes:
        whole: its tokens, as if the model took as many.
        windows: in order; each begins and ends with the special tokens of a text.
        bounds: of each window among the text's own tokens, special ones left out: the first
            one, and the one after the last.
        spans: the same in characters of the text.
        num_before: special tokens before a text.
    """

    whole: Tokens
    windows: list[Tokens]
    bounds: list[tuple[int, int]]
    spans: list[tuple[int, int]]
    num_before: int

    def owners(self) -> NDArray[np.intp]:
        """Return, for each of the text's own tokens, the window that has most on either side.

        The ends of the text are no edges; of equals, the first window.
        """
        num_own = self.bounds[-1][1]
        owner, most = np.zeros(num_own, np.intp), np.full(num_own, -1)
        for window, (start, end) in enumerate(self.bounds):
            places = np.arange(start, end)
            before = places - start if start else num_own
            after = end - 1 - places if end < num_own else num_own
            around = np.minimum(before, after)
            better = around > most[start:end]
            owner[start:end][better] = window
            most[start:end] = np.maximum(around, most[start:end])
        return owner


class WindowBounds:
    """How much text fits into the windows of one text."""

    def __init__(
        self, max_tokens: int, num_special: int, stride: int, words_per_token: int | None = 1
    ) -> None:
        """Work out the bounds.

        Args:
            max_tokens: of a window, special tokens included.
            num_special: tokens that the tokenizer puts around a text.
            stride: tokens that neighbours share.
            words_per_token: the most words that one token holds; None if that is not known.

        Raises:
            InvalidRequest: windows that share as many would not move on.
        """
        self.own = max_tokens - num_special
        self.step = self.own - stride
        if self.step < 1:
            raise InvalidRequest(
                f"windows.stride: must be below {self.own}, the tokens of a text that fit into a "
                "window of this model"
            )
        self.max_tokens = self.own + (MAX_WINDOWS - 1) * self.step
        self.max_words = max_words(self.max_tokens, words_per_token)
        self.max_chars = max(CHARS_PER_TOKEN * max_tokens, _MAX_CHARS)

    def check(self, place: int, text: str) -> None:
        """Refuse a text that surely does not fit, before it is tokenized.

        Raises:
            TextTooLong: the message names its place in the request.
        """
        if len(text) > self.max_chars:
            raise self._too_long(place, f"{len(text)} characters")
        if len(text) > self.max_words and next(
            islice(WORD.finditer(text), self.max_words, None), None
        ):
            raise self._too_long(place, f"more than {self.max_words} words")

    def starts(self, place: int, num_own: int) -> range:
        """Return where windows begin in a text of so many own tokens.

        Raises:
            TextTooLong: there would be too many; the message names its place in the request.
        """
        if num_own > self.max_tokens:
            raise self._too_long(place, f"{num_own} tokens", num_own)
        return range(0, max(1, num_own - self.own + self.step), self.step)

    def _too_long(self, place: int, found: str, num_tokens: int = 0) -> TextTooLong:
        return TextTooLong(
            f"inputs[{place}] has {found}; {MAX_WINDOWS} windows, the most of one text, take "
            f"{self.max_tokens} tokens and {self.max_chars} characters: send it in parts",
            num_tokens,
        )


def cut(place: int, encoding: Encoding, whole: Tokens, bounds: WindowBounds) -> Cut:
    """Cut the text at a place of the request into windows.

    The bounds must be for just the number of special tokens that the encoding has.
    """
    own = np.flatnonzero(np.array(encoding.special_tokens_mask) == 0)
    before, num_own = int(own[0]), int(own[-1] - own[0] + 1)
    offsets = encoding.offsets
    ranges = [(s, min(s + bounds.own, num_own)) for s in bounds.starts(place, num_own)]
    spans = [(offsets[before + s][0], offsets[before + e - 1][1]) for s, e in ranges]
    return Cut(whole, [_window(whole, before, num_own, r) for r in ranges], ranges, spans, before)


def _window(whole: Tokens, before: int, num_own: int, bounds: tuple[int, int]) -> Tokens:
    """Return some of a text's own tokens between its special ones."""
    total = len(whole.input_ids)
    kept = np.r_[0:before, before + bounds[0] : before + bounds[1], before + num_own : total]
    counted, spans = whole.counted, whole.word_spans
    return Tokens(
        whole.input_ids[kept],
        whole.token_type_ids[kept],
        None if counted is None else counted[kept],
        None if spans is None else _spans_of(spans, kept),
    )


def _spans_of(spans: WordSpans, kept: NDArray[np.intp]) -> WordSpans:
    of_text = None if spans.spans is None else spans.spans[kept]
    return WordSpans([spans.pieces[i] for i in kept.tolist()], of_text, spans.continues[kept])
