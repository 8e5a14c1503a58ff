"""The commands `offramp elue flops`, `score` and `plot`."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from models.data.notes import notes_to
from models.errors import TrainingFailed

_FOLDER = {"exists": True, "file_okay": False}
_FILE = {"exists": True, "dir_okay": False}

elue = typer.Typer(help="The ELUE benchmark's figures.", no_args_is_help=True)

_Reports = Annotated[
    list[Path],
    typer.Argument(
        metavar="REPORT...",
        help="report.json of `offramp evaluate`, or its folder.",
        exists=True,
    ),
]
_Family = Annotated[
    str | None,
    typer.Option(help="Kind of rule whose points count. Default: the one a report judges by."),
]
_Task = Annotated[
    str | None,
    typer.Option(help="Task of all reports, such as sst2. Default: the name of the data's folder."),
]


@elue.command()
def flops(
    model: Annotated[
        Path, typer.Argument(help="Model folder or checkpoint that predicted.", **_FOLDER)
    ],
    test_file: Annotated[
        Path, typer.Argument(help="What `offramp predict --format elue` wrote.", **_FILE)
    ],
    out: Annotated[
        Path | None, typer.Option(help="Table of the operations of each text to write.")
    ] = None,
) -> None:
    """Count the operations of what ran for each text, by PyTorch's counter."""
    from models.elue.priced import price

    if out:
        _check_unread(out, [test_file, model])
    priced = price(model, test_file)
    if out:
        out.write_text(priced.table(), "utf-8")
        typer.echo(out)
    for line in priced.summary():
        typer.echo(line)


@elue.command()
def score(
    reports: _Reports,
    reference: Annotated[
        list[Path],
        typer.Option(help="Report of static models; several times for several seeds.", exists=True),
    ],
    task: _Task = None,
    family: _Family = None,
) -> None:
    """Tell how far models lie above a static one at as many operations."""
    from models.elue.reports import read_reports
    from models.elue.scored import overall_of, scored

    errors = Console(stderr=True)
    with notes_to(errors):
        rows = scored(read_reports(reports, task), read_reports(reference, task), family)
    table = Table("task", "metric", "model", "rule", "points", "ELUE score", box=None)
    for measured, kind, num_points, found in rows:
        cells = (measured.task, measured.metric, measured.name, kind, str(num_points))
        table.add_row(*map(escape, cells), f"{found.score:+.2f}")
    Console(highlight=False, soft_wrap=True).print(table)
    for measured, _, num_points, found in rows:
        if found.clamped:
            typer.echo(
                f"{measured.name} on {measured.task}: {found.clamped} of {num_points} points lie "
                "outside the reference's MFLOPs, where its nearest end stands for it"
            )
    tasks = {row.measured.task for row in rows}
    typer.echo(
        f"overall, mean of {len(tasks)} task{'s'[: len(tasks) > 1]}: {overall_of(rows):+.2f}"
    )


@elue.command()
def plot(
    reports: _Reports,
    out: Annotated[Path, typer.Option(help="SVG to write.", dir_okay=False)],
    reference: Annotated[
        list[Path] | None,
        typer.Option(help="Report of static models, drawn as a line; several times.", exists=True),
    ] = None,
    task: _Task = None,
    family: _Family = None,
) -> None:
    """Draw performance against operations and against parameters."""
    import matplotlib as mpl

    from models.elue.plot import draw
    from models.elue.reports import read_reports, report_file
    from models.quality.style import STYLE, as_svg

    _check_unread(out, map(report_file, [*reports, *(reference or ())]))
    static = read_reports(reference, task) if reference else []
    with mpl.rc_context(STYLE):
        out.write_bytes(as_svg(draw(read_reports(reports, task), static, family)))
    typer.echo(out)


def _check_unread(out: Path, read: Iterable[Path]) -> None:
    """Raise TrainingFailed if what is written would replace what is read, or lie in it."""
    if any(out.resolve().is_relative_to(path.resolve()) for path in read):
        raise TrainingFailed(
            f"--out {out} is what the command reads, or lies in it: choose another place"
        )
