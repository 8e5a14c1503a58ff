"""Sentences as long as those of SST-2, from a vocabulary of our own."""

import random
from collections.abc import Iterator
from itertools import chain, islice

# Words per sentence in SST-2 dev: (longest of the bin, sentences), bins of four words.
_BIN_WORDS = 4
_LENGTHS = (
    (4, 8),
    (8, 79),
    (12, 123),
    (16, 144),
    (20, 138),
    (24, 129),
    (28, 105),
    (32, 77),
    (36, 40),
    (40, 16),
    (44, 10),
    (48, 3),
)

_SUBJECTS = (
    "the film",
    "the plot",
    "its cast",
    "the second half",
    "this director",
    "the music",
    "every scene",
    "the ending",
)
_VERBS = ("is", "feels", "remains", "turns out", "looks", "seems")
_DEGREES = ("rather", "almost", "surprisingly", "never", "utterly", "quite", "hardly")
_PRAISE = ("warm", "funny", "gripping", "tender", "clever", "moving", "fresh", "splendid")
_BLAME = ("dull", "hollow", "clumsy", "tedious", "shallow", "stale", "messy", "pointless")
_JOINS = (", and", ", but", ", while", ", because", "; still ,")


def make_sentences(num: int, seed: int) -> tuple[str, ...]:
    """Return sentences with the lengths of SST-2 dev; the same seed gives the same ones."""
    draw = random.Random(seed)
    longest, weights = zip(*_LENGTHS, strict=True)
    bins = draw.choices(longest, weights, k=num)
    return tuple(_sentence(draw, end - draw.randrange(_BIN_WORDS)) for end in bins)


def _sentence(draw: random.Random, num_words: int) -> str:
    return " ".join(islice(chain.from_iterable(_clauses(draw)), num_words))


def _clauses(draw: random.Random) -> Iterator[list[str]]:
    while True:
        opinion = draw.choice(draw.choice((_PRAISE, _BLAME)))
        parts = (_SUBJECTS, _VERBS, _DEGREES)
        yield " ".join([*(draw.choice(part) for part in parts), opinion]).split()
        yield draw.choice(_JOINS).split()
