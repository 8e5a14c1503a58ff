"""`offramp export`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, get_args

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from export.bundle_folder import BUNDLE
from export.errors import ExportFailed
from models.staging import check_replaceable

if TYPE_CHECKING:
    from export.plan import Export
    from serve.bundle.manifest import Manifest

_Exportable = Literal["fp32", "int8", "fp16"]


def export(
    model: Annotated[
        Path, typer.Argument(help="Folder of a model; `offramp inspect` tells its format.")
    ],
    out: Annotated[Path, typer.Option(help="Bundle folder to write; a bundle there is replaced.")],
    precision: Annotated[
        str,
        typer.Option(
            help="Variants, comma separated: fp32; int8 for CPUs with VNNI; fp16 for GPUs."
        ),
    ] = "fp32,int8",
    exits: Annotated[
        str | None, typer.Option(help="Exit layers, comma separated; all the model has if absent.")
    ] = None,
    layers: Annotated[
        int | None,
        typer.Option(help="Keep the first so many layers only: a shorter model to compare with."),
    ] = None,
    last_ramp: Annotated[
        bool,
        typer.Option(
            "--last-ramp",
            help="DeeBERT only: also test the last layer's untrained ramp, as the original does.",
        ),
    ] = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="Drop the certified rules of the bundle that is replaced."),
    ] = False,
) -> None:
    """Turn a model, or a checkpoint of a known system, into a bundle that `offramp serve` loads.

    Ids and logits at full depth are compared with transformers' own, and every exit's logits with
    the model's, before anything appears at --out.
    """
    from serve.bundle.loader import parse_layers

    precisions = _precisions(precision)
    wanted = parse_layers("--exits", exits) if exits is not None else None
    check_replaceable(out, BUNDLE)
    console = Console(stderr=True)
    with console.status("loading the model, and comparing it with transformers"):
        from export.plan import plan

        planned = plan(model, precisions, wanted, layers, last_ramp)
    for note in planned.notes:
        _note(console, note)
    manifest = _write(planned, out, console, force)
    for name, variant in manifest.variants.items():
        found = variant.parity
        labels = f"same label in {found.label_agreement:.1%} of {found.rows} rows at all exits"
        if manifest.task == "regression":
            labels = f"in {found.rows} rows at all exits"
        console.print(f"{name}: largest logit error {found.max_logit_error:.2g}, {labels}")
    console.print(f"the model was {planned.compared}", highlight=False, soft_wrap=True)
    typer.echo(out)


def _write(planned: "Export", out: Path, console: Console, force: bool) -> "Manifest":
    from export.bundle import write

    with _progress(console) as progress:
        task = progress.add_task("", total=planned.num_steps)
        done = iter(range(planned.num_steps))
        manifest = write(
            planned,
            out,
            lambda step: progress.update(task, description=step, completed=next(done)),
            lambda note: _note(console, note),
            force,
        )
        progress.update(task, description="done", completed=planned.num_steps)
    return manifest


def _note(console: Console, note: str) -> None:
    console.print(f"note: {note}", highlight=False)


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description:16}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, TimeElapsedColumn(), console=console)


def _precisions(listed: str) -> tuple[_Exportable, ...]:
    wanted = {name.strip() for name in listed.split(",") if name.strip()}
    unknown = sorted(wanted - set(get_args(_Exportable)))
    if unknown or not wanted:
        raise ExportFailed(
            f"--precision {listed!r}: must be some of {', '.join(get_args(_Exportable))}"
        )
    return tuple(name for name in get_args(_Exportable) if name in wanted)
