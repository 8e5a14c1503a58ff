"""The logits of all exits of a model on a data set."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from models.data.alignment import IGNORED
from models.data.batches import collate, sorted_batches
from models.data.encoding import EncodedRow
from models.heads import HeadOutput
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
        uncertainty: (exits, rows) the error that each head predicts for itself; None without.
    """

    logits: NDArray[np.float32]
    gold: NDArray[np.int64] | NDArray[np.float32]
    traits: Traits
    in_text: NDArray[np.bool_] | None = None
    uncertainty: NDArray[np.float32] | None = None

    @property
    def exits(self) -> tuple[int, ...]:
        """Exit layers, ascending."""
        return self.traits.exits


def predict(
    model: MultiExitModel,
    rows: Sequence[EncodedRow],
    advance: Callable[[int], None] = lambda rows: None,
) -> Predictions:
    """Run every row through all exits; the model's training mode is restored afterwards.

    Args:
        model: on any device.
        rows: with labels of the model's task.
        advance: called after each batch with its number of rows.
    """
    width = max(len(row.ids) for row in rows)
    token = model.exit_config.task == "token"
    inner = (width, len(model.labels)) if token else (len(model.labels),)
    logits = np.zeros((len(model.exits), len(rows), *inner), np.float32)
    uncertainty = np.zeros(logits.shape[:2], np.float32) if model.traits.learned else None
    was_training = model.training
    model.eval()
    for indices in sorted_batches([len(row.ids) for row in rows], BATCH_SIZE):
        outputs = _run(model, [rows[i] for i in indices])
        values = _stacked([output.logits for output in outputs])
        if token:
            logits[:, indices, : values.shape[2]] = values
        else:
            logits[:, indices] = values
        if uncertainty is not None:
            errors = [output.uncertainty for output in outputs]
            uncertainty[:, indices] = _stacked([e for e in errors if e is not None])
        advance(len(indices))
    model.train(was_training)
    in_text = _in_text(rows, width) if token else None
    return Predictions(
        logits, gold_of([row.label for row in rows], width), model.traits, in_text, uncertainty
    )


def _run(model: MultiExitModel, rows: Sequence[EncodedRow]) -> list[HeadOutput]:
    device = next(model.parameters()).device
    batch = collate(rows, model.config.pad_token_id or 0).to(device)
    with torch.inference_mode():
        return model.exit_outputs(batch.input_ids, batch.attention_mask, batch.token_type_ids)


def _stacked(tensors: Sequence[torch.Tensor]) -> NDArray[np.float32]:
    values: NDArray[np.float32] = torch.stack(list(tensors)).float().cpu().numpy()
    return values


def gold_of(labels: Sequence[Any], width: int) -> NDArray[np.int64] | NDArray[np.float32]:
    """Return the correct answers of encoded rows, see `Predictions`.

    Args:
        labels: as in `EncodedRow`.
        width: tokens of the longest row.
    """
    if not isinstance(labels[0], list):
        return torch.tensor(labels).numpy()
    gold = np.full((len(labels), width), IGNORED, np.int64)
    for index, tags in enumerate(labels):
        gold[index, : len(tags)] = tags
    return gold


def _in_text(rows: Sequence[EncodedRow], width: int) -> NDArray[np.bool_]:
    in_text = np.zeros((len(rows), width), np.bool_)
    for index, row in enumerate(rows):
        in_text[index, : len(row.ids)] = row.in_text
    return in_text
