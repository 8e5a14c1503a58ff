"""Made-up sentences as long as those of SST-2."""

import random
from collections.abc import Iterator
from itertools import chain, islice

from loadtest.simulator.traffic import sst2_lengths

# Tokens of the longest sentence in SST-2 dev, [CLS] and [SEP] included.
_LONGEST = 55
_SPECIAL_TOKENS = 2
_SUBJECTS = ["the film", "the plot", "its cast", "the second half", "this director", "the music"]
_SUBJECTS += ["every scene", "the ending"]
_VERBS = ["is", "feels", "remains", "turns out", "looks", "seems"]
_DEGREES = ["rather", "almost", "surprisingly", "never", "utterly", "quite", "hardly"]
_PRAISE = ["warm", "funny", "gripping", "tender", "clever", "moving", "fresh", "splendid"]
_BLAME = ["dull", "hollow", "clumsy", "tedious", "shallow", "stale", "messy", "pointless"]
_JOINS = (", and", ", but", ", while", ", because", "; still ,")


def make_sentences(num: int, seed: int) -> tuple[str, ...]:
    """Return sentences with as many tokens as those of SST-2; always the same for a seed."""
    draw = random.Random(seed)
    lengths = sst2_lengths(num, seed, _LONGEST)
    return tuple(_sentence(draw, int(length) - _SPECIAL_TOKENS) for length in lengths)


def _sentence(draw: random.Random, num_words: int) -> str:
    return " ".join(islice(chain.from_iterable(_clauses(draw)), num_words))


def _clauses(draw: random.Random) -> Iterator[list[str]]:
    while True:
        opinion = draw.choice(draw.choice((_PRAISE, _BLAME)))
        parts = (_SUBJECTS, _VERBS, _DEGREES)
        yield " ".join([*(draw.choice(part) for part in parts), opinion]).split()
        yield draw.choice(_JOINS).split()
