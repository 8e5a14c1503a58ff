"""What can be said of a text's length before it is tokenized, and the pieces of a request.

The tokenizer's library takes memory and time for every token of a text, also for those that are
cut off afterwards. So texts that are surely too long are refused or cut first.
"""

import re
import sys
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import NamedTuple, TypeVar

from serve.errors import TextTooLong

# A longer text is refused or cut by its characters. Words have five characters on average, and a
# text of one token for so many is no text of words.
CHARS_PER_TOKEN = 64

# As much is tokenized at once. A thread takes some ten milliseconds for it, and some ten MB.
PIECE_CHARS = 65_536

# Each of these has a token at least, its own or one for several (`words_per_token`): tokenizers
# may drop spaces, control characters and accents that stand alone, but neither letters nor digits.
WORD = re.compile(r"[^\W\u1cf2\u1cf3][^ \t\n\r]*")

Item = TypeVar("Item")


class Text(NamedTuple):
    """One input: a text, or a pair of texts."""

    text: str
    text_pair: str | None = None


class LengthBounds:
    """Bounds that follow from the most tokens that a model takes, special tokens included."""

    def __init__(self, max_tokens: int, words_per_token: int | None = 1) -> None:
        """Work out the bounds; without `words_per_token` there is none on words."""
        self._max_tokens = max_tokens
        self._max_chars = CHARS_PER_TOKEN * max_tokens
        self._max_words = max_words(max_tokens, words_per_token)
        # A token that reaches beyond the end of a cut text must not be among those that are kept.
        self._kept_words = self._max_words + (words_per_token or 1) - 1

    def check(self, place: int, text: Text) -> None:
        """Refuse an input that has too many characters, or more words than tokens are taken.

        Raises:
            TextTooLong: the message names the place in the request.
        """
        num_chars = sum(len(part) for part in text if part)
        if num_chars > self._max_chars:
            self._refuse(place, f"{num_chars} characters", f" and {self._max_chars} characters")
        if num_chars <= self._max_words:
            return
        words = chain(*(WORD.finditer(part) for part in text if part))
        if next(islice(words, self._max_words, None), None):
            self._refuse(place, f"more than {self._max_words} words", "")

    def cut(self, text: Text) -> Text:
        """Return the beginning of an input, which has as many tokens as the model takes.

        Of a pair, each text is cut as if it were alone.
        """
        pair = text.text_pair
        return Text(self._cut(text.text), None if pair is None else self._cut(pair))

    def _cut(self, part: str) -> str:
        part = part[: self._max_chars]
        if len(part) <= self._max_words:
            return part
        word = next(islice(WORD.finditer(part), self._kept_words, None), None)
        return part[: word.end()] if word else part

    def _refuse(self, place: int, found: str, also: str) -> None:
        raise TextTooLong(
            f"inputs[{place}] has {found}, the model takes {self._max_tokens} tokens{also}; "
            'shorten it or send "truncate": true'
        )


def max_words(max_tokens: int, words_per_token: int | None) -> int:
    """Return the most words that fit into so many tokens; a bound that none reaches for None."""
    return sys.maxsize if words_per_token is None else words_per_token * max_tokens


def in_pieces(items: Sequence[Item], sizes: Sequence[int], most: int) -> Iterator[Sequence[Item]]:
    """Yield runs of items, in order, each of at most this size or of one item."""
    first, size = 0, 0
    for place, of_item in enumerate(sizes):
        if size + of_item > most and place > first:
            yield items[first:place]
            first, size = place, 0
        size += of_item
    yield items[first:]
