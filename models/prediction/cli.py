"""The command `offramp predict`."""

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console

from models.data.notes import notes_to
from models.data.options import TextColumns, named_columns
from models.errors import TrainingFailed
from serve.policy.document import ExitChoice

_FOLDER = {"exists": True, "file_okay": False}
_FILE = {"exists": True, "dir_okay": False}


def predict(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="WHAT",
            help="Bundle, model folder, or checkpoint that `offramp export` takes.",
            **_FOLDER,
        ),
    ],
    data: Annotated[
        Path,
        typer.Option(
            help="Texts: .txt with one per line, .tsv, .csv, .jsonl or .conll, with labels or "
            "without.",
            **_FILE,
        ),
    ],
    out: Annotated[Path, typer.Option(help="File to write; predictions there are replaced.")],
    exit_: Annotated[
        str | None,
        typer.Option(
            "--exit",
            metavar="JSON",
            help='When texts leave: what a request says in `exit`, such as {"rule": "entropy", '
            '"threshold": 0.2}, or the name of a profile. Default: the policy\'s default.',
        ),
    ] = None,
    format_: Annotated[
        Literal["tsv", "jsonl", "elue"],
        typer.Option("--format", help="elue: the benchmark's test file, with the modules."),
    ] = "tsv",
    precision: Annotated[
        Literal["auto", "fp32", "int8", "fp16"],
        typer.Option(help="Of a bundle; auto: as served here."),
    ] = "auto",
    original: Annotated[
        Path | None,
        typer.Option(
            "--model", help="Model that a bundle was exported from, to count operations.", **_FOLDER
        ),
    ] = None,
    text_columns: TextColumns = None,
    resume: Annotated[
        bool, typer.Option(help="Go on where a stopped run with the same options ended.")
    ] = False,
) -> None:
    """Answer the texts of a file; after Ctrl-C, --resume goes on."""
    from models.prediction.predict import PredictionJob
    from models.prediction.predict import predict as run

    job = PredictionJob(
        model=model,
        data=data,
        out=out,
        exit=None if exit_ is None else exit_choice(exit_),
        format=format_,
        precision=precision,
        original=original,
        columns=named_columns(text_columns, None),
        resume=resume,
    )
    console = Console(stderr=True)
    with notes_to(console):
        finished = run(job, console)
    if not finished:
        console.print("stopped; the same command with --resume goes on")
        raise KeyboardInterrupt
    typer.echo(out)


def exit_choice(given: str) -> ExitChoice:
    """Return what `--exit` says.

    Raises:
        TrainingFailed: it is neither JSON of a rule or a target, nor a profile's name.
    """
    from pydantic import TypeAdapter, ValidationError

    from models.data.records import without_repeats
    from serve.classifier.classify_request import Exit, ProfileObject
    from serve.validation import explain

    value: Any = given
    try:
        if given.lstrip()[:1] in ("{", "[", '"'):
            value = json.loads(given, object_pairs_hook=without_repeats)
    except (ValueError, RecursionError) as error:
        raise TrainingFailed(f"--exit {given[:80]}: not JSON: {error}") from None
    try:
        found: ExitChoice | ProfileObject = TypeAdapter(Exit).validate_python(value)
    except ValidationError as error:
        raise TrainingFailed(f"--exit: {explain(error)}") from None
    return found.profile if isinstance(found, ProfileObject) else found
