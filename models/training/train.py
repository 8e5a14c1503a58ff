"""`offramp train`: from an encoder and labelled text to a measured model folder."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from rich.console import Console

from models.checkpoints.tokenizer_files import check_around
from models.data.datasets import Dataset, read_dataset, task_of
from models.data.encoding import EncodedRow, copy_tokenizer, encode, write_tokenizer
from models.data.examples import Example
from models.data.label_ids import are_ids, labels_file
from models.data.unlabelled import read_unlabelled, without_label
from models.errors import TrainingFailed
from models.multi_exit import MultiExitModel
from models.quality.card import write_training
from models.quality.recorded import Recorded, inputs, recorded
from models.quality.scores import exit_figures, main_metric, score
from models.quality.source import TorchSource
from models.quality.trained import write_trained
from models.table.files import write_table
from models.table.learn import HELD_OUT, Learned
from models.table.teach import teach, why_none
from models.training.best_weights import BestWeights
from models.training.checkpoint import Checkpoint
from models.training.checks import check_choice, check_fit, check_out
from models.training.job import TrainJob
from models.training.loop import fit
from models.training.measured import measure_folder
from models.training.options import CHECKPOINT
from models.training.provenance import describe_run
from models.training.recipes import RECIPES
from models.training.starting_model import read_classifier, rename, starting_model
from models.training.teacher import Teacher, TeacherAnswers
from models.training.training_run import TrainingRun
from serve.bundle.calibration import ExitFigures
from serve.bundle.loader import TOKENIZER, sha256_of
from serve.rules.traits import Task, Traits, listed
from serve.tokenization.tokenizer import Tokens

DTYPES = {"fp32": torch.float32, "fp16": torch.float16}
_SHOWN_LABELS = 20


def train(job: TrainJob, console: Console) -> bool:
    """Train, save, measure what was saved, and write calibration, policy and card.

    Returns:
        False if the user stopped the run; its checkpoint is then in the folder.

    Raises:
        TrainingFailed: data, encoder or options that cannot be used.
    """
    check_choice(job.choice)
    teacher = _labelling(job)
    if teacher:
        job = replace(job, answered_by=teacher.name)
    source, rows, dev = _prepare(job, teacher)
    model = source.model
    check_fit(job.choice, model.traits)
    stages = RECIPES[job.choice.recipe](model, job.choice.objective)
    check_out(job.out, {"encoder": job.choice.encoder, "teacher": job.choice.teacher})
    teacher = teacher or _read_teacher(job, model)  # which may know the labels' names
    console.print(_summary(model), soft_wrap=True, highlight=False, markup=False)
    checkpoint = Checkpoint(job.out / CHECKPOINT, fingerprint(job, teacher))
    if teacher and job.choice.taught:
        rows, dev = _answered(teacher, job, rows, dev, console)
    answers = _ask(teacher, job, rows, model.traits, console) if teacher else None
    run = TrainingRun(model, rows, stages, job.config, answers)
    best = BestWeights(main_metric(model.traits))
    if job.resume:
        state = checkpoint.load()
        run.restore(state)
        best.restore(state["best"])
    evaluate = partial(_evaluate, source, dev)
    finished = fit(run, best, checkpoint, evaluate, console, job.measured)
    if finished:
        found = _write(job, model, rows, dev, teacher, console)
        checkpoint.remove()
        if teacher:
            console.print(teacher.compared(job, found, console), soft_wrap=True, highlight=False)
            teacher.remove_cache(job)
    return finished


def fingerprint(job: TrainJob, teacher: Teacher | None) -> str:
    """Return a hash of everything that affects the trained weights, except the encoder's own."""
    parts = {
        "choice": job.choice.model_dump(mode="json", exclude={"encoder", "teacher"}),
        "teacher": teacher.sha256 if teacher else None,
        "config": job.config.model_dump(mode="json"),
        "encoder": sha256_of(job.choice.encoder / "config.json"),
        "train": sha256_of(job.train),
        "dev": sha256_of(job.dev),
        "columns": asdict(job.columns),
        "labels": [labels_file(path) for path in (job.train, job.dev)],
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _evaluate(source: TorchSource, dev: Sequence[Example]) -> tuple[ExitFigures, ...]:
    return exit_figures(recorded(source, *inputs(dev)))


def _labelling(job: TrainJob) -> Teacher | None:
    """Return the teacher whose answers stand for labels; None where the data has them."""
    choice = job.choice
    if not (choice.taught and choice.teacher):
        return None
    return Teacher(choice.teacher, choice.task, choice.labels or ())


def _prepare(
    job: TrainJob, teacher: Teacher | None
) -> tuple[TorchSource, list[EncodedRow], list[Example]]:
    """Return the untrained model, the rows to train on, and those to measure on.

    Args:
        job: the run.
        teacher: whose answers stand for labels.
    """
    choice = job.choice
    torch.manual_seed(job.config.seed)
    classifier = read_classifier(choice)
    task, known = choice.task, choice.labels or ()
    if teacher:
        task, known = teacher.task, tuple(teacher.labels)
    elif classifier and choice.frozen:  # which answers as before, whatever the data's labels are
        task, known = task or classifier.exit_config.task, known or tuple(classifier.labels)
    task = task or task_of(job.train, job.columns)
    labels, examples = _data(job, job.train, task, known, choice.objective.unlabelled)
    with TemporaryDirectory() as folder:
        write_tokenizer(choice.encoder, Path(folder))
        tokenizer = (Path(folder) / TOKENIZER).read_text("utf-8")
        train_rows = encode(Path(folder), examples, choice.max_tokens)
    _, dev = _data(job, job.dev, task, labels, choice.taught)
    torch.manual_seed(job.config.seed)
    model = starting_model(choice, classifier, task, labels).to(job.device)
    check_around(tokenizer, model.backbone.unplaced_id, choice.encoder)
    limit = model.backbone.max_tokens
    if choice.max_tokens > limit:
        raise TrainingFailed(
            f"max_tokens {choice.max_tokens}: the encoder takes at most {limit} tokens"
        )
    return TorchSource(model, tokenizer, choice.max_tokens), train_rows, dev


def _data(job: TrainJob, path: Path, task: Task, known: Sequence[str], unlabelled: bool) -> Dataset:
    """Return a file's examples; those of unlabelled texts bear labels that are never read."""
    if unlabelled:
        texts = read_unlabelled(path, job.columns)
        return Dataset(list(known), [without_label(text, task) for text in texts])
    return read_dataset(path, task, known, job.columns)


def _answered(
    teacher: Teacher,
    job: TrainJob,
    rows: Sequence[EncodedRow],
    dev: Sequence[Example],
    console: Console,
) -> tuple[list[EncodedRow], list[Example]]:
    """Return rows and examples with the teacher's answers for labels."""
    of_rows, of_dev = (teacher.answers(job, path, console) for path in (job.train, job.dev))
    return (
        [replace(row, label=label) for row, label in zip(rows, of_rows, strict=True)],
        [each._replace(label=label) for each, label in zip(dev, of_dev, strict=True)],
    )


def _summary(model: MultiExitModel) -> str:
    labels = model.labels
    named = [*map(repr, labels[:_SHOWN_LABELS]), *(["..."] if labels[_SHOWN_LABELS:] else [])]
    return f"task {model.exit_config.task}, labels ({len(labels)}): {listed(named)}"


def _read_teacher(job: TrainJob, model: MultiExitModel) -> Teacher | None:
    folder = job.choice.teacher
    if folder is None:
        return None
    teacher = Teacher(folder, model.exit_config.task, model.labels)
    if are_ids(model.labels):
        rename(model, tuple(teacher.label_names))
    return teacher


def _ask(
    teacher: Teacher, job: TrainJob, rows: Sequence[EncodedRow], traits: Traits, console: Console
) -> TeacherAnswers:
    """Return the teacher's answers, and print how often it is right.

    It seldom is if its labels are in another order and have no names that would tell.
    """
    logits = teacher.logits(job, job.train, console)
    if not job.choice.taught:
        gold = torch.tensor([row.label for row in rows]).numpy()
        metric = main_metric(traits)
        right = 100 * score(traits, gold, logits.numpy())[metric]
        console.print(f"teacher: {metric} {right:.1f} % on the training rows")
    return TeacherAnswers(logits, job.choice.teacher_weight, job.choice.temperature)


def _write(
    job: TrainJob,
    model: MultiExitModel,
    rows: Sequence[EncodedRow],
    dev: Sequence[Example],
    teacher: Teacher | None,
    console: Console,
) -> Recorded:
    model.save(job.out, DTYPES[job.dtype])
    copy_tokenizer(job.choice.encoder, job.out, model.backbone.max_tokens)
    found = measure_folder(job.out, job.dev, dev, job.choice.max_tokens, console, job.answered_by)
    sha256 = teacher.sha256 if teacher else None
    write_training(job.out, describe_run(job, model.exit_config.task, len(rows), sha256))
    tokens = [Tokens(np.array(row.ids), np.array(row.types)) for row in rows]
    write_trained(job.out, tokens, job.choice.max_tokens)
    write_table(job.out, _table(job, model, tokens, console))
    return found


def _table(
    job: TrainJob, model: MultiExitModel, tokens: Sequence[Tokens], console: Console
) -> Learned | None:
    """Return the table that the trained model teaches; None if it is to have none, or can not."""
    source = TorchSource(model, (job.out / TOKENIZER).read_text("utf-8"), job.choice.max_tokens)
    vocab_size = model.config.vocab_size
    if not job.table or why_none(source, vocab_size) or len(tokens) < HELD_OUT:
        return None
    return teach(source, tokens, vocab_size, console, job.config.seed)
