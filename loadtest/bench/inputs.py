"""What a batch of a given size feeds a model."""

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from serve.bundle.manifest import ATTENTION_MASK, INPUT_IDS, TOKEN_TYPE_IDS

Feeds: TypeAlias = dict[str, NDArray[np.int64]]  # each (rows, tokens)


class Shape(NamedTuple):
    """A batch's size."""

    rows: int
    tokens: int


def feeds_of(shape: Shape, vocabulary: int) -> Feeds:
    """Return random ids, unmasked."""
    ids = np.random.default_rng(0).integers(0, vocabulary, shape)
    return {INPUT_IDS: ids, ATTENTION_MASK: np.ones_like(ids), TOKEN_TYPE_IDS: np.zeros_like(ids)}
