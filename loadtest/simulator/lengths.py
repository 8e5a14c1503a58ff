"""How many tokens each request has."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from loadtest.simulator.errors import InvalidSimulation

MAX_TOKENS = 512


@dataclass(frozen=True, slots=True)
class Fixed:
    """All texts are equally long."""

    tokens: int

    def draw(self, num: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return token counts."""
        return np.full(num, self.tokens)


@dataclass(frozen=True, slots=True)
class LogNormal:
    """Many short texts, few long ones; the defaults are those of SST-2's dev set.

    Attributes:
        median: tokens, special ones included.
        sigma: of the logarithm.
        longest: longer draws are cut.
    """

    median: float = 23.0
    sigma: float = 0.45
    longest: int = 66

    def draw(self, num: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return token counts, at least 3."""
        drawn = rng.lognormal(np.log(self.median), self.sigma, num)
        return np.clip(np.rint(drawn), 3, self.longest).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Sampled:
    """Lengths drawn with replacement from those of a file."""

    tokens: tuple[int, ...]

    def draw(self, num: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return token counts."""
        return rng.choice(np.array(self.tokens), num)


Lengths = Fixed | LogNormal | Sampled


def read_lengths(text: str) -> Lengths:
    """Read `sst2-like`, a number of tokens, or the path of a file with a length or text per line.

    Raises:
        InvalidSimulation: none of these.
    """
    if text == "sst2-like":
        return LogNormal()
    if text.isdecimal():
        return Fixed(_checked(int(text), text))
    path = Path(text)
    if not path.is_file():
        raise InvalidSimulation(
            f"lengths {text!r}: expected sst2-like, a number of tokens, or a file that exists"
        )
    lines = path.read_text(encoding="utf-8").splitlines()
    places = ((line.strip(), f"{path}, line {i}") for i, line in enumerate(lines, 1))
    tokens = tuple(_checked(_length(line), place) for line, place in places if line)
    if not tokens:
        raise InvalidSimulation(f"lengths: {path} is empty")
    return Sampled(tokens)


def _length(line: str) -> int:
    """Return the number on the line, or a text's words as so many tokens plus two special ones."""
    return int(line) if line.isdecimal() else min(len(line.split()) + 2, MAX_TOKENS)


def _checked(tokens: int, place: str) -> int:
    if not 1 <= tokens <= MAX_TOKENS:
        raise InvalidSimulation(
            f"lengths: {place}: expected 1 to {MAX_TOKENS} tokens, not {tokens}"
        )
    return tokens
