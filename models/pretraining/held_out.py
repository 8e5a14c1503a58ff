"""Measures what every exit finds in held-out texts."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch.nn import functional

from models.data.alignment import IGNORED
from models.data.batches import collate
from models.data.encoding import EncodedRow
from models.pretraining.masking import MaskedBatch, Masking
from models.pretraining.model import Found, PretrainingModel
from serve.bundle.calibration import ExitFigures

_ROWS = 32


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
        exits, device = self._model.exits, next(self._model.parameters()).device
        sums = np.zeros((len(exits), 5))
        with torch.inference_mode():
            for masked in self._batches:
                here = masked.to(device)
                sums += [
                    _sums(found, here.batch.labels) for found in self._model.found(here, exits)
                ]
        return tuple(_figures(*each) for each in zip(exits, sums.tolist(), strict=True))


def _masked(rows: Sequence[EncodedRow], masking: Masking, pad_id: int) -> Iterator[MaskedBatch]:
    """Yield batches of rows of similar length; their words are the same in every run."""
    generator = torch.Generator().manual_seed(0)
    by_length = sorted(rows, key=lambda row: (len(row.ids), row.ids))
    for start in range(0, len(by_length), _ROWS):
        yield masking(collate(by_length[start : start + _ROWS], pad_id), generator)


def _sums(found: Found, order: torch.Tensor) -> list[float]:
    """Return an exit's hidden words, those named, their loss, its pairs, and those told."""
    named = (found.words.argmax(dim=-1) == found.targets).sum()
    loss = functional.cross_entropy(found.words.float(), found.targets, reduction="sum")
    pairs = told = torch.zeros(())
    if found.order is not None:
        pairs = (order != IGNORED).sum()
        told = (found.order.argmax(dim=-1) == order).sum()
    return [len(found.targets), *(each.item() for each in (named, loss, pairs, told))]


def _figures(layer: int, sums: Sequence[float]) -> ExitFigures:
    words, named, loss, pairs, told = sums
    metrics = {"loss": loss / max(1, words)} | ({"order": told / pairs} if pairs else {})
    return ExitFigures(layer=layer, accuracy=named / max(1, words), metrics=metrics)
