"""Requests as the engine takes them: random ids, a rule each."""

from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from serve.engine.row import Row
from serve.rules import ExitRule, LayerRule


def random_texts(
    lengths: Sequence[int] | NDArray[np.int64], vocabulary: int, seed: int = 0
) -> list[NDArray[np.int64]]:
    """Return random token ids, (tokens,) for each length."""
    draw = np.random.default_rng(seed)
    return [draw.integers(0, vocabulary, length) for length in lengths]


def row_of(text: NDArray[np.int64], rule: ExitRule) -> Row:
    """Return a fresh row; a row goes through an engine once."""
    return Row(text, np.zeros_like(text), rule)


def rows_of(texts: Sequence[NDArray[np.int64]], layers: Sequence[int]) -> list[Row]:
    """Return fresh rows, each of which is to leave at its layer."""
    rules = [_leaving_at(int(layer)) for layer in layers]
    return [row_of(text, rule) for text, rule in zip(texts, rules, strict=True)]


@cache
def _leaving_at(layer: int) -> ExitRule:
    """Return the rule; of equal ones a server hands the engine the same one, too."""
    return LayerRule(layer=layer)
