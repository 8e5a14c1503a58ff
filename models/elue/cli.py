"""The commands `offramp elue flops`, `report`, `score` and `plot`."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, TypeAlias

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from models.data.notes import notes_to
from models.errors import TrainingFailed

_FILE = {"exists": True, "dir_okay": False}
_TEST_FILE = "What `offramp predict --format elue` or another program wrote"

elue = typer.Typer(help="The ELUE benchmark's figures.", no_args_is_help=True)

_Model: TypeAlias = Annotated[
    Path, typer.Argument(help="Model folder or checkpoint that predicted.", exists=True)
]
_Reports: TypeAlias = Annotated[
    list[Path],
    typer.Argument(
        metavar="REPORT...",
        help="report.json of `offramp evaluate` or `offramp elue report`, or its folder.",
        exists=True,
    ),
]
_Family: TypeAlias = Annotated[
    str | None,
    typer.Option(help="Kind of rule whose points count. Default: the one a report judges by."),
]
_Task: TypeAlias = Annotated[
    str | None,
    typer.Option(help="Task of all reports, such as sst2. Default: the name of the data's folder."),
]


@elue.command()
def flops(
    model: _Model,
    test_file: Annotated[Path, typer.Argument(help=f"{_TEST_FILE}.", **_FILE)],
    out: Annotated[
        Path | None, typer.Option(help="Table of the operations of each text to write.")
    ] = None,
) -> None:
    """Count the operations of what ran for each text, by PyTorch's counter."""
    from models.elue.submission import Submission

    if out:
        _check_unread(out, [test_file, model])
    submission = Submission(model)
    priced = submission.price(test_file)
    if out:
        out.write_text(priced.table(), "utf-8")
        typer.echo(out)
    for line in (*priced.summary(), f"parameters: {submission.parameters / 1e6:.3f} M"):
        typer.echo(line)


@elue.command()
def report(
    model: _Model,
    test_files: Annotated[
        list[Path], typer.Argument(help=f"{_TEST_FILE}, one for each setting of the rule.", **_FILE)
    ],
    data: Annotated[Path, typer.Option(help="The same texts with the correct answers.", **_FILE)],
    out: Annotated[Path, typer.Option(help="Report to write.", dir_okay=False)],
) -> None:
    """Score a submission: test files of one task. `score` and `plot` read the report."""
    import json

    from models.elue.submission import Submission

    _check_unread(out, [*test_files, model, data])
    found = Submission(model).report(test_files, data)
    out.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    typer.echo(out)


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
    """Tell how far models lie above a static one at as many operations.

    The rank is among the reports of the same task and class of parameters.
    """
    import numpy as np

    from models.elue.reports import read_reports
    from models.elue.score import elue_score, rank, size_class

    with notes_to(Console(stderr=True)):
        models, static = read_reports(reports, task), read_reports(reference, task)
        rows = [
            (m, size_class(m.parameters), elue_score(m.points(family), m.reference(static)))
            for m in models
        ]
    head = ("task", "metric", "model", "rule", "points", "parameters", "class", "rank")
    table, by_task = Table(*head, "ELUE score", box=None), dict[str, list[float]]()
    for m, board, found in rows:
        by_task.setdefault(m.task, []).append(found.score)
        beside = [other.score for o, own, other in rows if (o.task, own) == (m.task, board)]
        cells = [m.task, m.metric, m.name, family or m.judged_by, str(len(m.points(family)))]
        if m.parameters:
            cells += [f"{m.parameters / 1e6:.1f} M", board, rank(found.score, beside)]
        else:
            cells += ["-"] * 3
        table.add_row(*map(escape, cells), f"{found.score:+.2f}")
    Console(highlight=False, soft_wrap=True, width=160).print(table)
    for m, _, found in rows:
        if found.clamped:
            typer.echo(
                f"{m.name} on {m.task}: {found.clamped} of {len(m.points(family))} points lie "
                "outside the reference's MFLOPs, where its nearest end stands for it"
            )
    # Of several reports of a task, their mean counts once.
    overall = np.mean([np.mean(scores) for scores in by_task.values()])
    tasks = f"{len(by_task)} task{'s'[: len(by_task) > 1]}"
    typer.echo(f"overall, mean of {tasks}: {overall:+.2f}")


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
