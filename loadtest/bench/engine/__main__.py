"""`python -m loadtest.bench.engine`: the engine's bars on a model of BERT-base's size."""

import datetime
import json
import sys
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Literal

import typer
from rich.console import Console

from loadtest.bench.engine.bars import Bar, bars_table
from loadtest.bench.engine.settings import QUICK, Budget
from loadtest.bench.engine.suite import Plan, measure
from loadtest.bench.machine import machine_facts
from loadtest.bench.random_model import BERT_BASE, NARROW, build
from loadtest.http.console import print_text, run_typed
from serve.bundle.manifest import Precision
from serve.runtime.hardware import available_threads


def bench_engine(
    precision: Annotated[
        Literal["both", "fp32", "int8"], typer.Option(help="Variants to measure.")
    ] = "both",
    quick: Annotated[bool, typer.Option("--quick", help="A rough look in a few minutes.")] = False,
    threads: Annotated[int | None, typer.Option(help="All cores if absent.", min=1)] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write all figures to this file.")
    ] = None,
) -> None:
    """Hold the engine against its bars, on a random model with BERT-base's layers.

    Ratios are within this run, contenders in turns; the rest of the machine should be idle.
    """
    console = Console(stderr=True)
    plan = Plan(("fp32", "int8"), threads or available_threads(), QUICK if quick else Budget())
    if precision != "both":
        plan = plan._replace(precisions=(precision,))
    machine = machine_facts(plan.num_threads)
    precisions: tuple[Precision, ...] = ("fp32", "int8")
    with TemporaryDirectory() as folder, console.status("drawing weights and exporting") as status:
        bundle = build(BERT_BASE, precisions, Path(folder, BERT_BASE.name))
        narrow = build(NARROW, precisions, Path(folder, NARROW.name))
        bars = measure(plan, bundle, narrow, status.update)
    show(bars, machine, json_file)


def show(bars: list[Bar], machine: dict[str, object], json_file: Path | None) -> None:
    """Print the table; write the JSON."""
    missed = sum(not bar.met for bar in bars)
    print_text(Console(), f"{bars_table(bars)}\n\n{len(bars) - missed} bars met, {missed} missed")
    if json_file:
        found = {
            "date": datetime.date.today().isoformat(),
            "machine": machine,
            "model": asdict(BERT_BASE),
            "bars": [bar.as_json() for bar in bars],
        }
        json_file.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(run_typed("benchmark", bench_engine))
