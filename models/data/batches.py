"""Batches of rows of similar length, padded to the longest row in the batch."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from models.data.alignment import IGNORED
from models.data.encoding import EncodedRow

# Rows are sorted by length within a pool of this many batches. There is almost no padding, and
# batches still differ from epoch to epoch.
POOL_BATCHES = 50


class Batch(NamedTuple):
    """Padded rows as tensors.

    Attributes:
        input_ids: (rows, tokens).
        attention_mask: (rows, tokens), 1 for real tokens, 0 for padding.
        token_type_ids: (rows, tokens).
        labels: (rows,) label ids; (rows,) float32 values of a regression; (rows, labels) float32
            marks of several labels; (rows, tokens) tag ids, `IGNORED` where there is none.
    """

    input_ids: Tensor
    attention_mask: Tensor
    token_type_ids: Tensor
    labels: Tensor

    def to(self, device: torch.device) -> "Batch":
        """Return the batch on a device."""
        return Batch(*(tensor.to(device) for tensor in self))


def shuffled_batches(
    lengths: Sequence[int], batch_size: int, seed: int, epoch: int
) -> list[list[int]]:
    """Return an epoch's batches as row numbers, determined by seed and epoch.

    Args:
        lengths: tokens per row.
        batch_size: rows per batch; a pool's last batch may be smaller.
        seed: the run's seed.
        epoch: counted from 0.
    """
    rng = np.random.default_rng([seed, epoch])
    tokens = np.asarray(lengths)
    order = rng.permutation(len(tokens))
    batches = []
    for pool in _slices(order, batch_size * POOL_BATCHES):
        batches += _slices(pool[np.argsort(tokens[pool], kind="stable")], batch_size)
    return [batches[i].tolist() for i in rng.permutation(len(batches))]


def collate(rows: Sequence[EncodedRow], pad_id: int) -> Batch:
    """Pad rows to the length of the longest."""
    width = max(len(row.ids) for row in rows)
    input_ids = torch.full((len(rows), width), pad_id)
    attention_mask = torch.zeros((len(rows), width), dtype=torch.long)
    token_type_ids = torch.zeros((len(rows), width), dtype=torch.long)
    for i, row in enumerate(rows):
        length = len(row.ids)
        input_ids[i, :length] = torch.tensor(row.ids)
        attention_mask[i, :length] = 1
        token_type_ids[i, :length] = torch.tensor(row.types)
    labels = torch.tensor([_padded(row, width) for row in rows])
    return Batch(input_ids, attention_mask, token_type_ids, labels)


def _padded(row: EncodedRow, width: int) -> Any:
    if isinstance(row.label, list):
        return row.label + [IGNORED] * (width - len(row.ids))
    return row.label


def _slices(array: np.ndarray, size: int) -> list[np.ndarray]:
    return [array[start : start + size] for start in range(0, len(array), size)]
