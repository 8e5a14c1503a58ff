"""The command `offramp train`.

Torch is imported when it runs, so that `offramp --help` stays quick.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console

from models.data.notes import notes_to
from models.data.options import LabelColumn, TextColumns, named_columns, split_names
from models.errors import TrainingFailed
from models.training.options import (
    Bf16,
    Device,
    ExitLayers,
    Resume,
    Seed,
    check_resume,
    of_learning,
    of_model,
    of_run,
)

if TYPE_CHECKING:
    from models.heads import AnyHeadConfig

_FOLDER = {"exists": True, "file_okay": False}
_FILE = {"exists": True, "dir_okay": False}


def train(
    encoder: Annotated[
        Path,
        typer.Option(
            "--encoder",
            "--classifier",
            help="Transformers folder to start from: an encoder, or a classifier, whose head "
            "becomes the last exit's.",
            **_FOLDER,
        ),
    ],
    train: Annotated[
        Path, typer.Option(help="Training data: .tsv, .csv, .jsonl or .conll.", **_FILE)
    ],
    dev: Annotated[Path, typer.Option(help="Data to measure on and calibrate with.", **_FILE)],
    out: Annotated[Path, typer.Option(help="Model folder to write.", file_okay=False)],
    text_columns: TextColumns = None,
    label_column: LabelColumn = None,
    task: Annotated[
        Literal["single_label", "multi_label", "regression", "token"] | None,
        of_model(help="What labels mean. Default: detected from the training data."),
    ] = None,
    recipe: Annotated[
        Literal[
            "joint",
            "two-stage",
            "mixed",
            "alternating",
            "gradient-equilibrium",
            "grouped",
            "frozen",
        ],
        typer.Option(
            help="joint: all exits at once; two-stage: backbone first, then exits; mixed: backbone "
            "first, then all; alternating: the last exit and all in turn; gradient-equilibrium: "
            "all at once, every layer equally fast; grouped: so too, every second exit in turn; "
            "frozen: earlier exits only, from what --classifier answers"
        ),
    ] = "joint",
    distill: Annotated[
        float, of_learning(min=0, help="Weight of earlier exits learning from the last one.")
    ] = 0.0,
    exit_weights: Annotated[
        Literal["depth", "sum", "mean", "descending", "shallow-deep"] | None,
        of_learning(
            help="How much each exit's loss counts: by its depth, alike (sum or mean), by its "
            "depth in reverse, or shallow-deep: inner exits ever more. Default: the recipe's."
        ),
    ] = None,
    diversity: Annotated[
        float,
        of_learning(min=0, help="Weight of answering unlike earlier exits, below 1, for voting."),
    ] = 0.0,
    unlabelled: Annotated[
        bool,
        of_learning(
            "--unlabelled",
            help="Read no labels: with --teacher its answers stand for them, in --dev too; with "
            "--recipe frozen the exits learn from --classifier.",
        ),
    ] = False,
    learn_error: Annotated[
        bool,
        of_learning(
            "--learn-error",
            help="Exits also learn to estimate their own error, by which rule learned leaves.",
        ),
    ] = False,
    teacher: Annotated[
        Path | None,
        of_learning(
            help="Classifier with the same labels; all exits learn from its answers too.", **_FOLDER
        ),
    ] = None,
    teacher_weight: Annotated[
        float, of_learning(help="Weight of learning from the teacher; from labels it is 1.")
    ] = 1.0,
    temperature: Annotated[
        float, of_learning(help="Softens the probabilities learned from the teacher.")
    ] = 1.0,
    head: Annotated[
        Literal["pooled", "attention"],
        of_model(help="Form of new heads: a pool and a dense layer, or FastBERT's attention."),
    ] = "pooled",
    pooling: Annotated[
        Literal["first", "mean"] | None,
        of_model(help="What a head reads: first token, or mean (default). Not for tokens."),
    ] = None,
    layers: Annotated[
        int | None,
        of_model(
            min=1,
            help="Keep only the encoder's first so many layers, by default with one exit after "
            "the last of them.",
        ),
    ] = None,
    exits: ExitLayers = None,
    labels: Annotated[
        str | None,
        of_model(help="Label names by id, e.g. no,yes. Default: labels.json, or the data's."),
    ] = None,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the data, per stage.")] = 3,
    lr: Annotated[
        float | None,
        of_run(help="Peak learning rate. Default: 2e-5; for --recipe frozen 1e-3."),
    ] = None,
    head_lr_factor: Annotated[
        float, of_run(help="How much faster the heads learn than the encoder.")
    ] = 1.0,
    batch_size: Annotated[int, of_run(min=1, help="Rows per step.")] = 32,
    average_every: Annotated[
        int | None,
        of_run(min=1, help="Save the mean of the weights, taken every so many steps."),
    ] = None,
    table: Annotated[
        bool,
        of_model(
            help="Also teach a table, by which texts may leave before the first layer; not for "
            "tokens and numbers."
        ),
    ] = True,
    max_tokens: Annotated[int, of_model(min=4, help="Longer texts are cut.")] = 128,
    seed: Seed = 42,
    dtype: Annotated[Literal["fp32", "fp16"], of_model(help="Type of the saved weights.")] = "fp32",
    bf16: Bf16 = None,
    device: Device = "auto",
    evaluate_every: Annotated[
        int | None, of_run(min=1, help="Steps between evaluations. Default: each epoch.")
    ] = None,
    keep_best: Annotated[
        bool, of_run(help="Save the weights of the best evaluation, not the last ones.")
    ] = False,
    resume: Resume = False,
) -> None:
    """Train a multi-exit classifier; after Ctrl-C, --resume continues the run."""
    check_resume(out, resume)
    from pydantic import ValidationError

    from models.training.device import available, has_bf16
    from models.training.job import ModelChoice, TrainConfig, TrainJob, default_lr
    from models.training.objective import Objective
    from models.training.train import train as run
    from serve.bundle.loader import parse_layers
    from serve.validation import explain

    torch_device = available(device)
    try:
        choice = ModelChoice(
            encoder=encoder,
            task=task,
            labels=split_names(labels),
            layers=layers,
            exits=None if exits is None else parse_layers("--exits", exits),
            head=_head(head, pooling),
            recipe=recipe,
            objective=Objective(
                distill=distill,
                exit_weights=exit_weights,
                learn_error=learn_error,
                diversity=diversity,
                unlabelled=unlabelled,
            ),
            teacher=teacher,
            teacher_weight=teacher_weight,
            temperature=temperature,
            max_tokens=max_tokens,
        )
        config = TrainConfig(
            epochs=epochs,
            lr=default_lr(recipe) if lr is None else lr,
            head_lr_factor=head_lr_factor,
            batch_size=batch_size,
            seed=seed,
            average_every=average_every,
            evaluate_every=evaluate_every,
            keep_best=keep_best,
            bf16=has_bf16(torch_device) if bf16 is None else bf16,
        )
    except ValidationError as error:
        raise TrainingFailed(explain(error)) from error
    console = Console(stderr=True)
    columns = named_columns(text_columns, label_column)
    job = TrainJob(
        choice, config, train, dev, out, dtype, resume, torch_device, columns, table=table
    )
    with notes_to(console):
        finished = run(job, console)
    if not finished:
        console.print("stopped; the same command with --resume goes on")
        raise KeyboardInterrupt
    typer.echo(out)
    answers = encoder if choice.frozen else teacher if choice.taught else None
    compared = f" --unlabelled --reference {answers}" if answers else ""
    console.print(
        f"to certify what early exits may cost: `offramp export {out} --out BUNDLE`, then "
        f"`offramp calibrate BUNDLE --data FILE{compared}` with texts that the training has not "
        "used",
        soft_wrap=True,
        highlight=False,
    )


def _head(kind: str, pooling: Literal["first", "mean"] | None) -> "AnyHeadConfig | None":
    """Return the shape of new heads; None for the one that fits the task."""
    from models.heads import AttentionHeadConfig, HeadConfig

    if kind == "attention":
        if pooling:
            raise TrainingFailed(
                f"--pooling {pooling}: attention heads read all tokens; leave --pooling or "
                "--head attention out"
            )
        return AttentionHeadConfig(kind="attention")
    return HeadConfig(pooling=pooling) if pooling else None
