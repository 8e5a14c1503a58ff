"""`offramp train`: from an encoder and labelled text to a measured model folder."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile

import torch
from pydantic import BaseModel, ConfigDict, NonNegativeFloat, PositiveInt
from rich.console import Console

from models.data.datasets import read_dataset, task_of
from models.data.encoding import EncodedRow, copy_tokenizer, encode
from models.errors import TrainingFailed
from models.evaluation.card import write_training
from models.evaluation.evaluate import exit_figures
from models.evaluation.measure import measure
from models.evaluation.outcome import run_model
from models.evaluation.scores import main_metric
from models.multi_exit import HeadConfig, MultiExitModel
from models.training.best_weights import BestWeights
from models.training.checkpoint import Checkpoint
from models.training.earlier_exits import read_classifier
from models.training.loop import fit
from models.training.provenance import described
from models.training.recipes import FROZEN, RECIPES
from models.training.run import TrainConfig, TrainingRun
from serve.bundle.loader import sha256_of
from serve.rules.traits import Task

DTYPES = {"fp32": torch.float32, "fp16": torch.float16}
CHECKPOINT = "training.ckpt"


class ModelChoice(BaseModel):
    """What is trained: the encoder, where exits are, how the heads look, by which recipe.

    Attributes:
        encoder: a transformers folder.
        task: what the labels mean; None takes what the training file tells.
        labels: label names by id; None takes them from the data.
        exits: exit layers; None puts one after every layer.
        head: shape of the heads; None takes the one that fits the task.
        recipe: a key of `models.training.recipes.RECIPES`.
        distill: weight of learning from the last exit's answers.
        max_tokens: longer texts are cut.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    encoder: Path
    task: Task | None = None
    labels: tuple[str, ...] | None = None
    exits: tuple[int, ...] | None = None
    head: HeadConfig | None = None
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
    torch.manual_seed(job.config.seed)
    classifier = _classifier(job.choice) if job.choice.recipe == FROZEN else None
    task = classifier.exit_config.task if classifier else job.choice.task or task_of(job.train)
    known = classifier.labels if classifier else job.choice.labels or ()
    labels, train_rows = _read(job.train, task, job.choice, known)
    _, dev_rows = _read(job.dev, task, job.choice, labels)
    torch.manual_seed(job.config.seed)
    model = (classifier or _build(job.choice, task, labels)).to(job.device)
    _check_length(job.choice, model)
    console.print(_summary(model), soft_wrap=True, highlight=False)
    stages = RECIPES[job.choice.recipe](model, job.choice.distill)
    _check_out(job)
    run = TrainingRun(model, train_rows, stages, job.config)
    best = BestWeights(main_metric(model.traits))
    checkpoint = _checkpoint(job, run, best)
    finished = fit(run, best, checkpoint, lambda: exit_figures(run_model(model, dev_rows)), console)
    if finished:
        _write(job, model)
        write_training(job.out, described(job, task, len(train_rows)))
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


def _read(
    path: Path, task: Task, choice: ModelChoice, labels: Sequence[str]
) -> tuple[list[str], list[EncodedRow]]:
    names, examples = read_dataset(path, task, labels)
    return names, encode(choice.encoder, examples, choice.max_tokens)


def _build(choice: ModelChoice, task: Task, labels: list[str]) -> MultiExitModel:
    if task == "token" and choice.head and choice.head.pooling != "tokens":
        raise TrainingFailed(
            f"pooling {choice.head.pooling}: in token classification every token has an answer "
            "of its own; leave the pooling out"
        )
    try:
        model = MultiExitModel.from_encoder(choice.encoder, labels, choice.exits, choice.head, task)
    except (ValueError, OSError) as error:
        raise TrainingFailed(f"{choice.encoder}: {error}") from error
    return model


def _classifier(choice: ModelChoice) -> MultiExitModel:
    model = read_classifier(choice.encoder, choice.labels, choice.exits)
    if choice.head is not None:
        raise TrainingFailed("recipe frozen: the heads are like the classifier's own; no --pooling")
    if choice.task not in (None, model.exit_config.task):
        raise TrainingFailed(
            f"--task {choice.task}: the classifier's task is {model.exit_config.task}"
        )
    return model


def _check_length(choice: ModelChoice, model: MultiExitModel) -> None:
    positions = model.backbone.max_tokens
    if choice.max_tokens > positions:
        raise TrainingFailed(
            f"max_tokens {choice.max_tokens}: the encoder takes at most {positions} tokens"
        )


def _check_out(job: TrainJob) -> None:
    """Raise before hours of training if there is nowhere to put what comes out."""
    out = job.out
    if out.resolve() == job.choice.encoder.resolve():
        raise TrainingFailed(
            f"--out {out}: is the encoder's folder, which would be overwritten; choose another one"
        )
    try:
        out.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise TrainingFailed(
            f"--out {out}: cannot be written ({error.strerror}); choose another folder"
        ) from error


def _summary(model: MultiExitModel) -> str:
    labels = model.labels
    named = ", ".join(labels) if len(labels) <= 20 else f"{', '.join(labels[:20])}, ..."
    return f"task {model.exit_config.task}, labels ({len(labels)}): {named}"


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
    copy_tokenizer(job.choice.encoder, job.out, model.backbone.max_tokens)
    measure(job.out, job.dev, job.choice.max_tokens)
