"""How a model was trained, for its card: data, recipe, command, versions."""

import shlex
from typing import Any

import torch
import transformers
from pydantic import BaseModel

from models.heads import AnyHeadConfig, AttentionHeadConfig
from models.training.job import TrainJob, default_lr
from models.training.objective import Objective
from serve.bundle.loader import sha256_of
from serve.rules.traits import Task
from serve.version import __version__


def describe_run(
    job: TrainJob, task: Task, num_rows: int, teacher_sha256: str | None = None
) -> str:
    """Return Markdown: data, recipe, command and versions.

    Args:
        job: the run that made the model.
        task: what the labels mean.
        num_rows: number of training rows.
        teacher_sha256: of the teacher's weights and tokenizer, if there was a teacher.
    """
    choice, config = job.choice, job.config
    train, dev = job.train, job.dev
    precision = "bfloat16 autocast" if config.bf16 else "float32"
    return "\n".join(
        [
            f"Task `{task}`, recipe `{choice.recipe}`, {config.epochs} epochs per stage over "
            f"{num_rows} rows of `{train.parent.name}/{train.name}` (sha256 "
            f"`{sha256_of(train)[:12]}...`), measured on `{dev.parent.name}/{dev.name}`. AdamW, "
            f"weight decay {config.weight_decay:g} on matrices, linear warm-up and decay, "
            f"{precision}.{_taught(job, teacher_sha256)}",
            *as_repeated(command(job)),
        ]
    )


def as_repeated(command: str) -> list[str]:
    """Return the lines of a card that say how to train the same model again."""
    return [
        "",
        "```sh",
        command,
        "```",
        "",
        f"offramp {__version__}, torch {torch.__version__}, transformers "
        f"{transformers.__version__}. Another processor or number of threads rounds "
        "differently and gives slightly different weights.",
    ]


def _taught(job: TrainJob, sha256: str | None) -> str:
    if not (job.choice.teacher and sha256):
        return ""
    what = f"the answers of the teacher `{job.choice.teacher.name}`"
    of = f"(sha256 of weights and tokenizer `{sha256[:12]}...`)"
    if job.choice.taught:
        return f" No labels were read: {what} {of} stand for them."
    return f" All exits also learned from {what} {of}."


def command(job: TrainJob) -> str:
    """Return the `offramp train` command line of a run, without options at their defaults."""
    choice, config = job.choice, job.config
    options: dict[str, Any] = {
        "classifier" if choice.frozen else "encoder": choice.encoder,
        "train": job.train,
        "dev": job.dev,
        "out": job.out,
        "text_columns": ",".join(job.columns.texts),
        "label_column": job.columns.label,
        **_changed(choice, ("task", "recipe", "max_tokens")),
        **_changed(choice.objective, tuple(Objective.model_fields)),
        **_changed(choice, ("teacher", "teacher_weight", "temperature")),
        "labels": ",".join(choice.labels or ()),
        "layers": choice.layers,
        "exits": ",".join(map(str, choice.exits or ())),
        **_head(choice.head),
        **_changed(config, ("epochs",)),
        "lr": config.lr if config.lr != default_lr(choice.recipe) else None,
        **_changed(config, ("head_lr_factor", "batch_size", "seed")),
        **_changed(config, ("average_every", "evaluate_every", "keep_best")),
        "table": None if job.table else False,
        "bf16": config.bf16,
        "dtype": job.dtype,
    }
    words = ["offramp train"]
    for name, value in options.items():
        words += _option(name.replace("_", "-"), value)
    return " ".join(words)


def _head(head: AnyHeadConfig | None) -> dict[str, str]:
    if isinstance(head, AttentionHeadConfig):
        return {"head": head.kind}
    return {"pooling": head.pooling} if head else {}


def _changed(settings: BaseModel, names: tuple[str, ...]) -> dict[str, Any]:
    fields = type(settings).model_fields
    values = {name: getattr(settings, name) for name in names}
    return {name: value for name, value in values.items() if value != fields[name].default}


def _option(name: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [f"--{name}" if value else f"--no-{name}"]
    return [f"--{name} {shlex.quote(str(value))}"] if value not in ("", None) else []
