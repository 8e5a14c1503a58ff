"""What all exits of a model say of a data set."""

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


class Outcome(NamedTuple):
    """All exits' logits on a data set.

    Attributes:
        logits: (exits, rows, labels), float32; of token classification
            (exits, rows, tokens, labels).
        gold: what is right: (rows,) label ids or values; (rows, labels) 1 or 0;
            (rows, tokens) tag ids, `IGNORED` where no word begins.
        traits: of the model.
        counted: (rows, tokens) of token classification: neither padding nor special tokens.
    """

    logits: NDArray[np.float32]
    gold: NDArray[np.int64] | NDArray[np.float32]
    traits: Traits
    counted: NDArray[np.bool_] | None = None

    @property
    def exits(self) -> tuple[int, ...]:
        """Exit layers, ascending."""
        return self.traits.exits


def run_model(model: MultiExitModel, rows: Sequence[EncodedRow]) -> Outcome:
    """Run every row through all exits; the model comes back in the mode it was in."""
    width = max(len(row.ids) for row in rows)
    token = model.exit_config.task == "token"
    inner = (width, len(model.labels)) if token else (len(model.labels),)
    logits = np.zeros((len(model.exits), len(rows), *inner), np.float32)
    was_training = model.training
    device = next(model.parameters()).device
    model.eval()
    for chosen in sorted_batches([len(row.ids) for row in rows], BATCH_SIZE):
        batch = collate([rows[i] for i in chosen], model.config.pad_token_id or 0).to(device)
        with torch.inference_mode():
            found = model(batch.input_ids, batch.attention_mask, batch.token_type_ids)
        values = torch.stack(found).float().cpu().numpy()
        if token:
            logits[:, chosen, : values.shape[2]] = values
        else:
            logits[:, chosen] = values
    model.train(was_training)
    counted = _counted(rows, width) if token else None
    return Outcome(logits, _gold(rows, width), model.traits, counted)


def _gold(rows: Sequence[EncodedRow], width: int) -> NDArray[np.int64] | NDArray[np.float32]:
    if not isinstance(rows[0].label, list):
        return torch.tensor([row.label for row in rows]).numpy()
    gold = np.full((len(rows), width), IGNORED, np.int64)
    for place, row in enumerate(rows):
        gold[place, : len(row.ids)] = row.label
    return gold


def _counted(rows: Sequence[EncodedRow], width: int) -> NDArray[np.bool_]:
    counted = np.zeros((len(rows), width), np.bool_)
    for place, row in enumerate(rows):
        counted[place, : len(row.ids)] = row.counted
    return counted
