"""Whether a checkpoint, as it is served, says what transformers' own classes say."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import torch
import transformers
from torch import Tensor

from models.checkpoints.compared_ids import Row, added_tokens, differing_ids, sample_rows
from models.checkpoints.formats import LoadedCheckpoint
from models.checkpoints.original import Logits, OriginalFails, OriginalModel, open_original
from models.checkpoints.tokenizer_files import check_around
from models.errors import UnusableCheckpoint
from serve.bundle.loader import TOKENIZER
from serve.tokenization.tokenizer import TextEncoder

# Largest difference of a logit, as a share of it where it is larger than 1.
TOLERANCE = 1e-4
# Of longer texts only the ids are compared, and of all texts the logits of so many.
_MOST_TOKENS, _MOST_ROWS = 512, 17


class Served(NamedTuple):
    """A checkpoint as it is served.

    Attributes:
        tokenizer: tokenizes as the server does.
        logits: of the last exit, for ids and token types of one text, each (1, tokens).
    """

    tokenizer: TextEncoder
    logits: Logits


def served_by(loaded: LoadedCheckpoint) -> Served:
    """Return what a bundle of the checkpoint will serve in fp32, before there is one."""
    with TemporaryDirectory() as place:
        path = Path(place) / TOKENIZER
        path.write_text(loaded.tokenizer, "utf-8")
        encoder = TextEncoder(path, loaded.max_tokens)
    return Served(encoder, lambda ids, types: loaded.model(ids, torch.ones_like(ids), types)[-1])


def compare(folder: Path, loaded: LoadedCheckpoint, served: Served) -> str:
    """Compare ids and full-depth logits with those of transformers on sample texts.

    Returns:
        What was compared, or why it could not be, in one line.

    Raises:
        UnusableCheckpoint: something differs; the message shows the first difference.
    """
    original, unplaced_id = open_original(folder, loaded), loaded.model.backbone.unplaced_id
    missing, said = list(original.missing), []
    added = added_tokens(served.tokenizer, original.tokenizer, loaded.model.config.vocab_size)
    rows = sample_rows(folder, served.tokenizer, added, loaded.info.exits.task != "token")
    if original.tokenizer is not None:
        found = differing_ids(rows, original.tokenizer, served.tokenizer.max_tokens)
        if found is None:
            name = type(original.tokenizer).__name__
            said.append(f"the ids of {name} in {len(rows)} texts with {len(added)} added tokens")
        elif loaded.info.format == "Offramp":
            missing.append(f"the tokenizer is the one of the training; {found}")
        else:
            raise UnusableCheckpoint(f"{folder}: the tokenizer differs from transformers: {found}")
    if original.model is not None:
        check_around(loaded.tokenizer, unplaced_id, folder)
        # RoBERTa's and MPNet's positions skip the padding token where a text has it, which is not
        # done here: no text of a client has it.
        computed = [
            row
            for row in rows[:_MOST_ROWS]
            if len(row.tokens.input_ids) <= _MOST_TOKENS and unplaced_id not in row.tokens.input_ids
        ]
        try:
            gap = _largest_gap(folder, computed, served.logits, original.model)
            said.append(f"logits of {original.model.name} to {gap:.1g} in {len(computed)} texts")
        except OriginalFails as error:
            missing.append(str(error))
    version, reasons = f"transformers {transformers.__version__}", "; ".join(missing)
    if not said:
        return f"not compared with {version}: {reasons}"
    partly = f". Not compared: {reasons}" if missing else ""
    return f"compared with {version}: {' and '.join(said)}{partly}"


def _largest_gap(folder: Path, rows: list[Row], served: Logits, original: OriginalModel) -> float:
    """Return how far apart logits are at most.

    Raises:
        OriginalFails: transformers cannot compute a text.
        UnusableCheckpoint: a logit is further off than is allowed, or no number.
    """
    if not rows:
        raise OriginalFails("in every sample text are tokens that the model takes for padding")
    largest = 0.0
    for row in rows:
        wanted = original(*row.inputs)[0]
        with torch.no_grad():
            found = served(*row.inputs)[0]
        gaps = ((found - wanted).abs() / wanted.abs().clamp(min=1)).nan_to_num(torch.inf).flatten()
        worst = int(gaps.argmax())
        place = f"in {row}, {_place(worst, found, original.labels)} is"
        if not wanted.isfinite().all():
            raise UnusableCheckpoint(
                f"{folder}: {place} no number by {original.name} itself: its weights hold NaN or "
                "too large numbers, as after a training that diverged"
            )
        largest = max(largest, float(gaps[worst]))
        if gaps[worst] > TOLERANCE:
            raise UnusableCheckpoint(
                f"{folder}: the model differs from transformers: {place} "
                f"{float(wanted.flatten()[worst]):.6g} by {original.name}, and "
                f"{float(found.flatten()[worst]):.6g} as it would be served; a setting of "
                "config.json may ask for another computation"
            )
    return largest


def _place(index: int, logits: Tensor, labels: list[str]) -> str:
    """Name one of (labels,) or (tokens, labels) logits."""
    token = f"token {index // len(labels) + 1}, " if logits.ndim == 2 else ""
    return f"{token}the logit of {labels[index % len(labels)]!r}"
