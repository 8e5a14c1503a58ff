"""`offramp train`: from an encoder and labelled text to a measured model folder."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import torch
from pydantic import BaseModel, ConfigDict, NonNegativeFloat, PositiveInt
from rich.console import Console

from models.best import BestWeights
from models.checkpoint import Checkpoint
from models.encoding import EncodedRow, copy_tokenizer, encode
from models.errors import TrainingFailed
from models.evaluate import exit_figures, run_model
from models.examples import label_names, read_rows, to_examples
from models.fit import fit
from models.measure import measure
from models.multi_exit import HeadConfig, MultiExitModel
from models.recipes import RECIPES
from models.training import TrainConfig, TrainingRun
from serve.bundle import sha256_of

DTYPES = {"fp32": torch.float32, "fp16": torch.float16}
CHECKPOINT = "training.ckpt"


class ModelChoice(BaseModel):
    """What is trained: the encoder, where exits are, how the heads look, by which recipe.

    Attributes:
        encoder: a transformers folder.
        labels: label names by id; None takes them from the data.
        exits: exit layers; None puts one after every layer.
        recipe: a key of `models.recipes.RECIPES`.
        distill: weight of learning from the last exit's probabilities.
        max_tokens: longer texts are cut.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    encoder: Path
    labels: tuple[str, ...] | None = None
    exits: tuple[int, ...] | None = None
    head: HeadConfig = HeadConfig()
    recipe: str = "joint"
    distill: NonNegativeFloat = 0.0
    max_tokens: PositiveInt = 128


@dataclass(frozen=True)
class TrainJob:
    """One call of the command.

    Attributes:
        out: the model folder to write.
        dtype: of the saved weights, a key of `DTYPES`.
        resume: go on from the checkpoint in `out`.
        device: a torch device.
    """

    choice: ModelChoice
    config: TrainConfig
    train: Path
    dev: Path
    out: Path
    dtype: str = "fp32"
    resume: bool = False
    device: str = "cpu"


def train(job: TrainJob, console: Console) -> bool:
    """Train, save, measure what was saved, and write calibration, policy and card.

    Returns:
        False if the user stopped the run; its checkpoint is then in the folder.

    Raises:
        TrainingFailed: data, encoder or options that cannot be used.
    """
    labels, train_rows = _read(job.train, job.choice, list(job.choice.labels or ()))
    _, dev_rows = _read(job.dev, job.choice, labels)
    torch.manual_seed(job.config.seed)
    model = _build(job.choice, labels).to(job.device)
    stages = RECIPES[job.choice.recipe](model, job.choice.distill)
    run = TrainingRun(model, train_rows, stages, job.config)
    best = BestWeights()
    checkpoint = _checkpoint(job, run, best)
    finished = fit(run, best, checkpoint, lambda: exit_figures(run_model(model, dev_rows)), console)
    if finished:
        _write(job, model)
        checkpoint.remove()
    return finished


def fingerprint(job: TrainJob) -> str:
    """Return a hash of all that decides the trained weights, but for the encoder's own."""
    parts = {
        "choice": job.choice.model_dump(mode="json", exclude={"encoder"}),
        "config": job.config.model_dump(mode="json"),
        "encoder": sha256_of(job.choice.encoder / "config.json"),
        "train": sha256_of(job.train),
        "dev": sha256_of(job.dev),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _read(path: Path, choice: ModelChoice, labels: list[str]) -> tuple[list[str], list[EncodedRow]]:
    rows = read_rows(path)
    labels = labels or label_names(path, rows)
    examples = to_examples(path, rows, labels)
    return labels, encode(choice.encoder, examples, choice.max_tokens)


def _build(choice: ModelChoice, labels: list[str]) -> MultiExitModel:
    try:
        model = MultiExitModel.from_encoder(choice.encoder, labels, choice.exits, choice.head)
    except (ValueError, OSError) as error:
        raise TrainingFailed(f"{choice.encoder}: {error}") from error
    positions = model.config.max_position_embeddings
    if choice.max_tokens > positions:
        raise TrainingFailed(
            f"max_tokens {choice.max_tokens}: the encoder takes at most {positions} tokens"
        )
    return model


def _checkpoint(job: TrainJob, run: TrainingRun, best: BestWeights) -> Checkpoint:
    checkpoint = Checkpoint(job.out / CHECKPOINT, fingerprint(job))
    if job.resume:
        state = checkpoint.load()
        run.restore(state)
        best.restore(state["best"])
    elif checkpoint.path.exists():
        raise TrainingFailed(
            f"{checkpoint.path} is of an unfinished run: "
            "go on with it by --resume, or delete it to start anew"
        )
    return checkpoint


def _write(job: TrainJob, model: MultiExitModel) -> None:
    model.save(job.out, DTYPES[job.dtype])
    copy_tokenizer(job.choice.encoder, job.out, model.config.max_position_embeddings)
    measure(job.out, job.dev, job.choice.max_tokens)
