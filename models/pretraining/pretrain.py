"""`offramp pretrain`: from an encoder and texts to an encoder whose exits have read them."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from rich.console import Console
from tokenizers import Tokenizer
from torch import Tensor

from models.checkpoints.original import without_bars
from models.checkpoints.tokenizer_files import check_around
from models.data.batches import Batch
from models.data.encoding import EncodedRow, copy_tokenizer, encode, write_tokenizer
from models.data.notes import note
from models.encoders.families import read_config
from models.errors import TrainingFailed
from models.multi_exit import check_exits
from models.pretraining.card import summary, write_card
from models.pretraining.held_out import HeldOut
from models.pretraining.job import PretrainJob
from models.pretraining.language_model import read_language_model
from models.pretraining.masking import Masking, masking_of
from models.pretraining.model import Found, PretrainingModel, sum_of_exits
from models.pretraining.rows import Document, are_ordered, read_documents, split_rows
from models.training.best_weights import BestWeights
from models.training.checkpoint import Checkpoint
from models.training.checks import check_out
from models.training.gradient_equilibrium import groups_of
from models.training.loop import fit
from models.training.options import CHECKPOINT
from models.training.recipes import Stage, Turn
from models.training.training_run import TrainingRun
from serve.bundle.loader import TOKENIZER, sha256_of


class _Rows(NamedTuple):
    """The texts as token ids, and how they are masked."""

    train: list[EncodedRow]
    held_out: list[EncodedRow]
    masking: Masking


def pretrain(job: PretrainJob, console: Console) -> bool:
    """Train, measure before and after, and write the encoder with its tokenizer and card.

    Returns:
        False if the user stopped the run; its checkpoint is then in the folder.

    Raises:
        TrainingFailed: texts, encoder or options that cannot be used.
    """
    check_out(job.out, {"encoder": job.encoder})
    checkpoint = Checkpoint(job.out / CHECKPOINT, fingerprint(job))
    state = checkpoint.load() if job.resume else None
    documents = read_documents(job.texts, job.columns)
    model = _model(job, are_ordered(documents))
    rows = _rows(job, model, documents)
    held_out = HeldOut(model, rows.held_out, rows.masking)
    before = held_out.figures()
    console.print(summary("before", before), soft_wrap=True, highlight=False)
    run = TrainingRun(model, rows.train, (_stage(model, rows.masking),), job.config)
    if state:
        run.restore(state)
    finished = fit(run, BestWeights(), checkpoint, held_out.figures, console)
    if finished:
        after = held_out.figures()
        console.print(summary("after", after), soft_wrap=True, highlight=False)
        _write(job, model)
        write_card(job, before, after)
        checkpoint.remove()
    return finished


def fingerprint(job: PretrainJob) -> str:
    """Return a hash of everything that affects the weights, except the encoder's own."""
    parts = {
        "config": job.config.model_dump(mode="json"),
        "encoder": sha256_of(job.encoder / "config.json"),
        "texts": [sha256_of(path) for path in job.texts],
        "columns": asdict(job.columns),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _model(job: PretrainJob, ordered: bool) -> PretrainingModel:
    config = job.config
    depth = read_config(job.encoder).num_hidden_layers
    exits = config.exits or tuple(range(1, depth + 1))
    try:
        check_exits(exits, depth)
    except ValueError as error:
        raise TrainingFailed(f"--exits: {error}") from error
    torch.manual_seed(config.seed)
    try:
        language_model = read_language_model(job.encoder)
    except (ValueError, OSError) as error:
        raise TrainingFailed(f"{job.encoder}: {error}") from error
    model = PretrainingModel(language_model.model, exits, ordered).to(job.device)
    if not language_model.has_own_head:
        note(f"{job.encoder} holds no head that names words: it starts from random numbers")
    if not ordered:
        note(
            "the texts have no order to tell, so exits learn masked words only; in a .txt with a "
            "sentence per line and blank lines between documents they would learn both"
        )
    return model


def _rows(job: PretrainJob, model: PretrainingModel, documents: Sequence[Document]) -> _Rows:
    config, encoder = job.config, model.config
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_tokenizer(job.encoder, folder)
        masking = masking_of(job.encoder, str(encoder.model_type), int(encoder.vocab_size))
        content = (folder / TOKENIZER).read_text("utf-8")
        check_around(content, model.backbone.unplaced_id, job.encoder)
        tokenizer = Tokenizer.from_str(content)
        longest = min(config.max_tokens, model.backbone.max_tokens)
        split = split_rows(documents, tokenizer, longest, config.seed)
        train, held_out = (encode(folder, part, longest) for part in split)
    return _Rows(train, held_out, masking)


def _stage(model: PretrainingModel, masking: Masking) -> Stage:
    turns = tuple(_turn(masking, group) for group in groups_of(model.exits))
    return Stage("masked words", (model,), turns)


def _turn(masking: Masking, exits: tuple[int, ...]) -> Turn:
    """Return the step in which these exits learn."""

    def forward(model: Any, batch: Batch) -> list[Any]:
        found: list[Found] = model(masking(batch), exits)
        return found

    def loss(said: Any) -> Tensor:
        return sum_of_exits(said.outputs, said.labels)

    return Turn(loss, forward)


def _write(job: PretrainJob, model: PretrainingModel) -> None:
    with without_bars():
        model.encoder.save_pretrained(job.out)
    copy_tokenizer(job.encoder, job.out, model.backbone.max_tokens)
    # safetensors makes its files readable by their owner only.
    mode = (job.out / "config.json").stat().st_mode
    for path in job.out.glob("*.safetensors"):
        path.chmod(mode)
