"""Texts that are longer than a model takes, cut into windows that overlap."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding

from serve.errors import InvalidRequest, TextTooLong
from serve.tokenization.tokenizer import CHARS_PER_TOKEN, Tokens
from serve.tokenization.word_spans import WordSpans

# One text has at most so many windows, and costs no more than so many texts.
MAX_WINDOWS = 64

# A text is tokenized in one go, which takes a thread some 100 ms for so many characters. 64 windows
# of 512 tokens of English fit.
_MAX_CHARS = 262_144


class Cut(NamedTuple):
    """A text in several windows.

    Attributes:
        whole: the tokens of the text, as if the model took as many.
        windows: the windows in order; each begins and ends with the special tokens of a text.
        bounds: the first own token of each window and the one after its last; special tokens
            are not counted.
        spans: the same bounds in characters of the text.
        num_before: how many special tokens stand before a text.
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

    def __init__(self, max_tokens: int, num_special: int, stride: int) -> None:
        """Work out the bounds.

        Args:
            max_tokens: the size of a window, special tokens included.
            num_special: how many tokens the tokenizer puts around a text.
            stride: how many tokens neighbours share.

        Raises:
            InvalidRequest: windows that share so many tokens would not move on.
        """
        self.own = max_tokens - num_special
        self.step = self.own - stride
        if self.step < 1:
            raise InvalidRequest(
                f"windows.stride: must be below {self.own}, the tokens of a text that fit into a "
                "window of this model"
            )
        self.max_tokens = self.own + (MAX_WINDOWS - 1) * self.step
        self.max_chars = max(CHARS_PER_TOKEN * max_tokens, _MAX_CHARS)

    def check(self, place: int, num_chars: int, num_tokens: int = 0) -> None:
        """Refuse a text of too many characters, or of too many own tokens.

        Raises:
            TextTooLong: the message names the place in the request.
        """
        if num_chars <= self.max_chars and num_tokens <= self.max_tokens:
            return
        found = f"{num_tokens} tokens" if num_tokens else f"{num_chars} characters"
        raise TextTooLong(
            f"inputs[{place}] has {found}; {MAX_WINDOWS} windows, the most of one text, take "
            f"{self.max_tokens} tokens and {self.max_chars} characters: send it in parts",
            num_tokens,
        )


def cut(place: int, encoding: Encoding, whole: Tokens, bounds: WindowBounds) -> Cut:
    """Cut the text at a place of the request into windows.

    The bounds must be for just the number of special tokens that the encoding has.

    Raises:
        TextTooLong: there would be too many windows; the message names the place.
    """
    own = np.flatnonzero(np.array(encoding.special_tokens_mask) == 0)
    before, num_own = int(own[0]), int(own[-1] - own[0] + 1)
    bounds.check(place, 0, num_own)
    offsets = encoding.offsets
    starts = range(0, max(1, num_own - bounds.own + bounds.step), bounds.step)
    ranges = [(s, min(s + bounds.own, num_own)) for s in starts]
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
