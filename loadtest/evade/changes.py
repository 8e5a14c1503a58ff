"""Changes of a text by which its author might get past a guard.

A change is a kind and a phrase that is put before or behind the text, so that one which has worked
for a text can be tried on others; or it is about the text's own letters. Phrases are pieces of the
data's own texts, so that they are of its language and its kind.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

PREFIX, SUFFIX, REPEAT, SPACING, SPECIAL = "prefix", "suffix", "repeat", "spacing", "special tokens"
KINDS = (PREFIX, SUFFIX, REPEAT, SPACING, SPECIAL)
FOUND = "found ones on all"
_BEFORE = {PREFIX}
_MOST_WORDS, _MOST_REPEATS = 8, 60
# Between letters: a space, a soft hyphen, a zero-width space; and what a word may be cut with.
_GAPS = (" ", "\u00ad", "\u200b", ".", "-")


class Change(NamedTuple):
    """One way to change texts.

    Attributes:
        kind: one of `KINDS`.
        phrase: what is put before or behind a text; of spacing, what is put into a word.
        place: of spacing, from 0 to 1: which word.
    """

    kind: str
    phrase: str
    place: float = 0.0

    def of(self, text: str) -> str:
        """Return the text, changed."""
        if self.kind == SPACING:
            return _spaced(text, self.phrase, self.place)
        parts = (self.phrase, text) if self.kind in _BEFORE or self.place else (text, self.phrase)
        return " ".join(parts)


def changes(
    texts: Sequence[str], special: Sequence[str], tries: int, draw: np.random.Generator
) -> Iterator[Change]:
    """Yield so many changes of each kind; of special tokens none where the model has none."""
    for _ in range(tries):
        yield Change(PREFIX, _piece(texts, draw))
        yield Change(SUFFIX, _piece(texts, draw))
        yield Change(REPEAT, _repeated(_piece(texts, draw, most=2), draw))
        yield Change(SPACING, str(draw.choice(_GAPS)), float(draw.random()))
        if special:
            token = str(draw.choice(np.array(special, object)))
            yield Change(SPECIAL, _repeated(token, draw), float(draw.integers(2)))


def _piece(texts: Sequence[str], draw: np.random.Generator, most: int = _MOST_WORDS) -> str:
    """Return some words of any text."""
    words = texts[int(draw.integers(len(texts)))].split() or ["."]
    start, count = draw.integers(len(words)), draw.integers(1, most + 1)
    return " ".join(words[start : start + count])


def _repeated(piece: str, draw: np.random.Generator) -> str:
    return " ".join([piece] * int(np.geomspace(1, _MOST_REPEATS, 8)[draw.integers(8)]))


def _spaced(text: str, gap: str, place: float) -> str:
    """Return the text with gaps between the letters of a word."""
    words = text.split(" ")
    index = int(place * len(words))
    words[index] = gap.join(words[index])
    return " ".join(words)
