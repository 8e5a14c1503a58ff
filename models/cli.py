"""The commands `offramp evaluate` and `offramp inspect`.

Torch is imported when a command runs, so that `offramp --help` stays quick.
"""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from models.data.notes import notes_to
from models.data.options import LabelColumn, TextColumns, named_columns, split_names

_FOLDER = {"exists": True, "file_okay": False}
_FILE = {"exists": True, "dir_okay": False}


def evaluate(
    models: Annotated[
        list[Path],
        typer.Argument(
            metavar="WHAT...",
            help="Bundles, model folders, and checkpoints that `offramp export` takes.",
            **_FOLDER,
        ),
    ],
    data: Annotated[
        list[Path],
        typer.Option(help="Labelled data: .tsv, .csv, .jsonl or .conll; several times.", **_FILE),
    ],
    text_columns: TextColumns = None,
    label_column: LabelColumn = None,
    precision: Annotated[
        str,
        typer.Option(help="Of bundles, comma separated: fp32, int8, fp16; auto: as served here."),
    ] = "auto",
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the report; a report there is replaced.",
            show_default="evaluation/NAME",
        ),
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Option(help="Text to show through all exits; of a pair, a tab between. Several."),
    ] = None,
    examples: Annotated[
        int, typer.Option(min=0, help="Texts of the data to show, of each kind; 0 for none.")
    ] = 3,
    model: Annotated[
        list[Path] | None,
        typer.Option(help="Model that a bundle was exported from, to count operations.", **_FOLDER),
    ] = None,
    reference: Annotated[
        Path | None,
        typer.Option(
            help="Your own classifier, to compare with: a folder that `offramp inspect` reads, a "
            "bundle, or a file of its answers.",
            exists=True,
        ),
    ] = None,
) -> None:
    """Measure models and write a report; what is measured is only read."""
    from models.quality.report.evaluate import EvaluationJob
    from models.quality.report.evaluate import evaluate as run

    job = EvaluationJob(
        models=tuple(dict.fromkeys(models)),
        data=tuple(dict.fromkeys(data)),
        precisions=split_names(precision) or ("auto",),
        out=out,
        texts=tuple(text or ()),
        examples=examples,
        originals=tuple(model or ()),
        columns=named_columns(text_columns, label_column),
        reference=reference,
    )
    console = Console(stderr=True)
    with notes_to(console):
        page, summary = run(job, console)
    for sentence in summary:
        typer.echo(sentence)
    typer.echo(page)


def inspect(
    checkpoint: Annotated[Path, typer.Argument(help="Folder with config, weights, tokenizer.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
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
    from models.checkpoints import load, report

    examined = report.examine(checkpoint, load(checkpoint, last_ramp, layers))
    if as_json:
        typer.echo(json.dumps(report.as_json(examined), indent=1, ensure_ascii=False))
    else:
        Console(highlight=False).print(report.as_table(examined))
