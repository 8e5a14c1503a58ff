"""How many tokens each request has."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from loadtest.simulator.errors import InvalidSimulation
from models.data.lines import read_lines
from models.data.records import TABLES
from models.data.unlabelled import read_unlabelled
from models.errors import UnusableData

MAX_TOKENS = 512


@dataclass(frozen=True, slots=True)
class Sampled:
    """Lengths drawn with replacement; a single length makes all texts equally long."""

    tokens: tuple[int, ...]

    def draw(self, num: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return token counts."""
        if len(self.tokens) == 1:
            return np.full(num, self.tokens[0])
        return rng.choice(np.array(self.tokens), num)


@dataclass(frozen=True, slots=True)
class LogNormal:
    """Many short texts, few long ones; the defaults are those of SST-2's development set."""

    median: float = 23.0  # tokens, special ones included
    sigma: float = 0.45  # of the logarithm
    longest: int = 66  # longer draws are cut

    def draw(self, num: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return token counts, at least 3."""
        drawn = rng.lognormal(np.log(self.median), self.sigma, num)
        return np.clip(np.rint(drawn), 3, self.longest).astype(np.int64)


Lengths = Sampled | LogNormal


def sst2_lengths(num: int, seed: int) -> NDArray[np.int64]:
    """Return so many token lengths as in SST-2's development set."""
    return LogNormal().draw(num, np.random.default_rng(seed))


def read_lengths(text: str) -> Lengths:
    """Read `sst2-like`, a number of tokens, or the path of a file with a length or text per line.

    Raises:
        InvalidSimulation: none of these.
    """
    if text == "sst2-like":
        return LogNormal()
    if text.isdecimal():
        return Sampled((_checked(int(text), text),))
    path = Path(text)
    if not path.is_file():
        raise InvalidSimulation(
            f"lengths {text!r}: expected sst2-like, a number of tokens, or a file that exists"
        )
    tokens = tuple(_checked(_length(line), place) for line, place in _lines(path) if line)
    if not tokens:
        raise InvalidSimulation(f"lengths: {path} is empty")
    return Sampled(tokens)


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    """Yield lines, or the texts of a data file, with their places."""
    try:
        if path.suffix.lower() in TABLES:
            for text in read_unlabelled(path):
                yield " ".join(filter(None, text)), str(path)
        else:
            for number, line in read_lines(path):
                yield line.strip(), f"{path}, line {number}"
    except UnusableData as error:
        raise InvalidSimulation(f"lengths: {error}") from None


def _length(line: str) -> int:
    """Return the number on the line, or a text's words as so many tokens plus two special ones."""
    return int(line) if line.isdecimal() else min(len(line.split()) + 2, MAX_TOKENS)


def _checked(tokens: int, place: str) -> int:
    if not 1 <= tokens <= MAX_TOKENS:
        raise InvalidSimulation(
            f"lengths: {place}: expected 1 to {MAX_TOKENS} tokens, not {tokens}"
        )
    return tokens
