"""Measures what every exit finds in held-out texts."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch.nn import functional

from models.data.alignment import IGNORED
from models.data.batches import collate
from models.data.encoding import EncodedRow
from models.pretraining.masking import MaskedBatch, Masking
from models.pretraining.model import Found, PretrainingModel
from serve.bundle.calibration import ExitFigures

_ROWS = 32


class _Counts(NamedTuple):
    """Sums over texts of one exit."""

    words: float = 0.0
    named: float = 0.0
    loss: float = 0.0
    pairs: float = 0.0
    told: float = 0.0

    def plus(self, other: "_Counts") -> "_Counts":
        return _Counts(*(a + b for a, b in zip(self, other, strict=True)))


class HeldOut:
    """Held-out texts of which always the same words are hidden."""

    def __init__(
        self, model: PretrainingModel, rows: Sequence[EncodedRow], masking: Masking
    ) -> None:
        self._model = model
        self._batches = list(_masked(rows, masking, model.config.pad_token_id or 0))

    def figures(self) -> tuple[ExitFigures, ...]:
        """Measure the model in float32.

        Returns:
            For each exit, `accuracy` is the share of hidden words that it names, `loss` is their
            cross-entropy in nats, and `order` the share of pairs whose order it tells, where there
            are pairs.
        """
        self._model.eval()
        device = next(self._model.parameters()).device
        sums = [_Counts()] * len(self._model.exits)
        with torch.inference_mode():
            for masked in self._batches:
                here = masked.to(device)
                found = self._model.found(here, self._model.exits)
                counts = [_counts(each, here.batch.labels) for each in found]
                sums = [a.plus(b) for a, b in zip(sums, counts, strict=True)]
        return tuple(map(_figures, self._model.exits, sums))


def _masked(rows: Sequence[EncodedRow], masking: Masking, pad_id: int) -> Iterator[MaskedBatch]:
    """Yield batches of rows of similar length; their words are the same in every run."""
    generator = torch.Generator().manual_seed(0)
    by_length = sorted(rows, key=lambda row: (len(row.ids), row.ids))
    for start in range(0, len(by_length), _ROWS):
        yield masking(collate(by_length[start : start + _ROWS], pad_id), generator)


def _counts(found: Found, order: torch.Tensor) -> _Counts:
    named = (found.words.argmax(dim=-1) == found.targets).sum()
    loss = functional.cross_entropy(found.words.float(), found.targets, reduction="sum")
    pairs = told = torch.zeros(())
    if found.order is not None:
        pairs = (order != IGNORED).sum()
        told = (found.order.argmax(dim=-1) == order).sum()
    counts = (torch.tensor(len(found.targets)), named, loss, pairs, told)
    return _Counts(*(count.item() for count in counts))


def _figures(layer: int, counts: _Counts) -> ExitFigures:
    words = max(1, counts.words)
    metrics = {"loss": counts.loss / words}
    if counts.pairs:
        metrics["order"] = counts.told / counts.pairs
    return ExitFigures(layer=layer, accuracy=counts.named / words, metrics=metrics)
