"""`offramp inspect`: what lies in a checkpoint's folder, and what is wrong with it.

Torch is imported when the command runs, so that `offramp --help` stays quick.
"""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def inspect(
    checkpoint: Annotated[Path, typer.Argument(help="Folder with config, weights, tokenizer.")],
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
    layers: Annotated[
        int | None, typer.Option(help="As if only the first so many layers were kept.")
    ] = None,
    last_ramp: Annotated[
        bool,
        typer.Option("--last-ramp", help="DeeBERT only: with the last layer's untrained ramp."),
    ] = False,
) -> None:
    """Tell which system a checkpoint is of, what it holds, and what is wrong with it.

    Known are DeeBERT, BERxiT, PABEE, PCEE-BERT, ElasticBERT, FastBERT, plain transformers
    classifiers of whole texts and of tokens, and what `offramp train` writes.
    """
    from models.checkpoints import load
    from models.checkpoints import report as reports

    report = reports.examine(load(checkpoint, last_ramp, layers))
    if as_json:
        typer.echo(json.dumps(reports.as_json(report), indent=1, ensure_ascii=False))
    else:
        Console(highlight=False).print(reports.as_table(report))
