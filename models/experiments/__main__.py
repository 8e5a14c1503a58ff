"""`python -m models.experiments`: train what is missing, and write `docs/reproductions.md`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from models.errors import TrainingFailed
from models.experiments.context import Context
from models.experiments.page import missing_minutes, with_starts, write_page
from models.experiments.run import Run
from models.experiments.sections import SECTIONS
from models.experiments.training import Stopped, ensure, is_finished
from models.quality.page import table

_DEFAULT = Context()


def main(
    sections: Annotated[
        list[str] | None,
        typer.Argument(help="Names of sections, or how they begin. Default: all."),
    ] = None,
    finished_only: Annotated[
        bool, typer.Option("--finished-only", help="Train nothing; write what is there.")
    ] = False,
    show: Annotated[
        bool, typer.Option("--list", help="Print each section's runs and minutes left.")
    ] = False,
    data: Annotated[Path, typer.Option(help="Holds sst2/train.tsv and so on.")] = _DEFAULT.data,
    runs: Annotated[Path, typer.Option(help="Where the models go.")] = _DEFAULT.runs,
) -> None:
    """Train the runs of some sections, one after the other, and write these sections.

    After Ctrl-C the same command goes on.
    """
    for each in sections or []:
        if not any(name.startswith(each) for name in SECTIONS):
            raise typer.BadParameter(f"no section {each}; there are {', '.join(SECTIONS)}")
    chosen = [name for name in SECTIONS if not sections or name.startswith(tuple(sections))]
    context = Context(data=data, runs=runs)
    if show:
        rows = []
        for name in chosen:
            own = with_starts(SECTIONS[name].runs)
            done = sum(is_finished(run, context) for run in own)
            rows.append([name, len(own), done, missing_minutes(own, context)])
        typer.echo(table(["section", "runs", "finished", "minutes left"], rows))
        return
    failed = [] if finished_only else _train(chosen, context)
    typer.echo(write_page(SECTIONS, chosen, context))
    if failed:
        raise typer.Exit(1)


def _train(chosen: list[str], context: Context) -> list[Run]:
    """Train what the sections need; one run's failure does not keep others from being trained."""
    failed = []
    for run in with_starts(run for name in chosen for run in SECTIONS[name].runs):
        try:
            ensure(run, context, typer.echo)
        except TrainingFailed as error:
            typer.echo(f"error: {error}", err=True)
            failed.append(run)
        except Stopped as stopped:
            typer.echo(stopped, err=True)
            sys.exit(130)
    return failed


if __name__ == "__main__":
    typer.run(main)
