"""The logits of all exits of a model on a data set."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from models.data.alignment import IGNORED
from models.data.batches import collate, sorted_batches
from models.data.encoding import EncodedRow
from models.multi_exit import MultiExitModel
from serve.rules.traits import Traits

BATCH_SIZE = 64


class Predictions(NamedTuple):
    """All exits' logits on a data set, with the correct answers.

    Attributes:
        logits: (exits, rows, labels), float32; for token classification
            (exits, rows, tokens, labels).
        gold: the correct answers: (rows,) label ids or values; (rows, labels) 1 or 0;
            (rows, tokens) tag ids, `IGNORED` where no word begins.
        traits: of the model.
        in_text: (rows, tokens) for token classification: false for padding and special tokens.
    """

    logits: NDArray[np.float32]
    gold: NDArray[np.int64] | NDArray[np.float32]
    traits: Traits
    in_text: NDArray[np.bool_] | None = None

    @property
    def exits(self) -> tuple[int, ...]:
        """Exit layers, ascending."""
        return self.traits.exits


def predict(model: MultiExitModel, rows: Sequence[EncodedRow]) -> Predictions:
    """Run every row through all exits; the model's training mode is restored afterwards."""
    width = max(len(row.ids) for row in rows)
    token = model.exit_config.task == "token"
    inner = (width, len(model.labels)) if token else (len(model.labels),)
    logits = np.zeros((len(model.exits), len(rows), *inner), np.float32)
    was_training = model.training
    device = next(model.parameters()).device
    model.eval()
    for indices in sorted_batches([len(row.ids) for row in rows], BATCH_SIZE):
        batch = collate([rows[i] for i in indices], model.config.pad_token_id or 0).to(device)
        with torch.inference_mode():
            outputs = model(batch.input_ids, batch.attention_mask, batch.token_type_ids)
        values = torch.stack(outputs).float().cpu().numpy()
        if token:
            logits[:, indices, : values.shape[2]] = values
        else:
            logits[:, indices] = values
    model.train(was_training)
    in_text = _in_text(rows, width) if token else None
    return Predictions(logits, _gold(rows, width), model.traits, in_text)


def _gold(rows: Sequence[EncodedRow], width: int) -> NDArray[np.int64] | NDArray[np.float32]:
    if not isinstance(rows[0].label, list):
        return torch.tensor([row.label for row in rows]).numpy()
    gold = np.full((len(rows), width), IGNORED, np.int64)
    for index, row in enumerate(rows):
        gold[index, : len(row.ids)] = row.label
    return gold


def _in_text(rows: Sequence[EncodedRow], width: int) -> NDArray[np.bool_]:
    in_text = np.zeros((len(rows), width), np.bool_)
    for index, row in enumerate(rows):
        in_text[index, : len(row.ids)] = row.in_text
    return in_text
