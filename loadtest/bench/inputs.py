"""Random token ids, and batches of them as a model takes them."""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from serve.bundle.loader import Bundle

Ids: TypeAlias = NDArray[np.int64]


class Shape(NamedTuple):
    """A batch's size."""

    rows: int
    tokens: int


class Inputs(NamedTuple):
    """One batch. The fields are named after the graph's inputs and are all (rows, tokens)."""

    input_ids: Ids
    attention_mask: Ids
    token_type_ids: Ids


def random_inputs(shape: Shape, vocabulary: int) -> Inputs:
    """Return random ids without padding; always the same."""
    ids = np.random.default_rng(0).integers(0, vocabulary, shape)
    return Inputs(ids, np.ones_like(ids), np.zeros_like(ids))


def random_texts(lengths: Sequence[int] | Ids, vocabulary: int, seed: int = 0) -> list[Ids]:
    """Return random token ids, (tokens,) for each length."""
    draw = np.random.default_rng(seed)
    return [draw.integers(0, vocabulary, length) for length in lengths]


def padded(texts: Sequence[Sequence[int] | Ids], pad_id: int) -> Inputs:
    """Return texts as one batch, padded on the right to the longest."""
    lengths = np.array([len(ids) for ids in texts])
    mask = (np.arange(lengths.max()) < lengths[:, None]).astype(np.int64)
    ids = np.full(mask.shape, pad_id, np.int64)
    for row, text in zip(ids, texts, strict=True):
        row[: len(text)] = text
    return Inputs(ids, mask, np.zeros_like(ids))


def vocabulary_size(bundle: Bundle) -> int:
    """Return the number of token ids that the tokenizer knows."""
    return Tokenizer.from_file(str(bundle.tokenizer_path)).get_vocab_size()
