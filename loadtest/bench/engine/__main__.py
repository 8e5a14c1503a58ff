"""`python -m loadtest.bench.engine`: the engine's bars on a model of BERT-base's size."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from loadtest.bench.engine.settings import BERT_BASE, BERT_BASE_POOLER, QUICK, Budget
from loadtest.bench.engine.suite import Plan, measure
from loadtest.bench.engine.table import bars_table
from loadtest.http.console import run_typed
from serve.runtime.hardware import available_threads

_CACHE = Path("bundles/bench")


def bench_engine(
    precision: Annotated[
        Literal["both", "fp32", "int8"], typer.Option(help="Variants to measure.")
    ] = "both",
    quick: Annotated[bool, typer.Option("--quick", help="A rough look in a few minutes.")] = False,
    pooler: Annotated[
        bool, typer.Option("--pooler", help="Give every exit a tanh pooler of its own.")
    ] = False,
    threads: Annotated[int | None, typer.Option(help="All cores if absent.", min=1)] = None,
    cache: Annotated[Path, typer.Option(help="Folder for the models' bundles.")] = _CACHE,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write all figures to this file.")
    ] = None,
    date: Annotated[str, typer.Option(help="Written beside the figures.")] = "",
    strict: Annotated[bool, typer.Option("--strict", help="Exit 1 if a bar is missed.")] = False,
) -> None:
    """Hold the engine against its bars, on a random model with BERT-base's layers.

    Builds the model and its bundle once, into --cache. Ratios are within this run, contenders in
    turns; the rest of the machine should be idle.
    """
    plan = Plan(
        precisions=("fp32", "int8") if precision == "both" else (precision,),
        num_threads=threads or available_threads(),
        budget=QUICK if quick else Budget(),
        cache=cache,
        model=BERT_BASE_POOLER if pooler else BERT_BASE,
        date=date,
    )
    run(plan, json_file, strict)


def run(plan: Plan, json_file: Path | None, strict: bool) -> None:
    """Measure, print the table, write the JSON.

    Raises:
        typer.Exit: with status 1, if a bar is missed and `strict`.
    """
    with _progress() as report:
        document = measure(plan, report)
    console = Console()
    console.print(bars_table(document))
    missed = sum(not bar["met"] for bar in document["bars"])
    console.print(f"{len(document['bars']) - missed} bars met, {missed} missed", highlight=False)
    if json_file:
        json_file.write_text(json.dumps(document, indent=2) + "\n")
    if strict and missed:
        raise typer.Exit(1)


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """Show on stderr what is measured: one changing line, or a line each in a log."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda step: console.print(step, highlight=False, soft_wrap=True)
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("")
        yield lambda step: progress.update(task, description=step)


if __name__ == "__main__":
    sys.exit(run_typed("benchmark", bench_engine))
