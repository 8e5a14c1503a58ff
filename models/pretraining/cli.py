"""The command `offramp pretrain`. Torch is imported when it runs."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from models.data.notes import notes_to
from models.data.options import TextColumns, named_columns
from models.errors import TrainingFailed
from models.training.options import (
    Bf16,
    Device,
    ExitLayers,
    Resume,
    Seed,
    check_resume,
    of_model,
    of_run,
)


def pretrain(
    encoder: Annotated[
        Path,
        typer.Option(help="Transformers folder to start from.", exists=True, file_okay=False),
    ],
    text: Annotated[
        list[Path],
        typer.Option(
            help="Texts: .txt with a sentence per line and blank lines between documents, or with "
            "a text per line, or any data file, whose labels are not read; several times.",
            exists=True,
            dir_okay=False,
        ),
    ],
    out: Annotated[Path, typer.Option(help="Encoder folder to write.", file_okay=False)],
    text_columns: TextColumns = None,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the texts.")] = 3,
    exits: ExitLayers = None,
    max_tokens: Annotated[
        int, of_model(min=8, help="Longest row; a longer text gives several.")
    ] = 128,
    lr: Annotated[float, of_run(help="Peak learning rate.")] = 1e-4,
    batch_size: Annotated[int, of_run(min=1, help="Rows per step.")] = 32,
    seed: Seed = 42,
    bf16: Bf16 = None,
    device: Device = "auto",
    resume: Resume = False,
) -> None:
    """Teach every exit of an encoder to read, from texts; after Ctrl-C, --resume goes on."""
    check_resume(out, resume)
    from pydantic import ValidationError

    from models.pretraining.job import PretrainConfig, PretrainJob
    from models.pretraining.pretrain import pretrain as run
    from models.training.device import available, has_bf16
    from serve.bundle.loader import parse_layers
    from serve.validation import explain

    torch_device = available(device)
    try:
        config = PretrainConfig(
            epochs=epochs,
            lr=lr,
            batch_size=batch_size,
            max_tokens=max_tokens,
            exits=None if exits is None else parse_layers("--exits", exits),
            seed=seed,
            bf16=has_bf16(torch_device) if bf16 is None else bf16,
        )
    except ValidationError as error:
        raise TrainingFailed(explain(error)) from error
    columns = named_columns(text_columns, None)
    job = PretrainJob(encoder, tuple(text), out, config, resume, torch_device, columns)
    console = Console(stderr=True)
    with notes_to(console):
        finished = run(job, console)
    if not finished:
        console.print("stopped; the same command with --resume goes on")
        raise KeyboardInterrupt
    typer.echo(out)
    console.print(
        f"to train a classifier on it: `offramp train --encoder {out} --train FILE --dev FILE "
        "--out MODEL`",
        soft_wrap=True,
        highlight=False,
    )
